from __future__ import annotations

from typing import Any

import pytest

from ferrum.assembly.component_config import ComponentConfig
from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.assembly.speculation import read_speculation
from ferrum.core.config import EngineConfig, config_from_mapping
from ferrum.core.errors import InvalidConfig
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod
from ferrum.execution.executor import ExecutorCapacity, ResourceAuthority
from ferrum.execution.transformers_executor import TransformersExecutor
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_causal_model import ScriptedCausalModel
from ferrum.testing.scripted_executor import ScriptedExecutor

NGRAM = EngineConfig(speculation=SpeculationConfig(SpeculationMethod.NGRAM))


def _drafting(model: str, num_tokens: int | None = None) -> SpeculationConfig:
    return SpeculationConfig(SpeculationMethod.DRAFT, model, num_tokens)


def _read(config: EngineConfig, **options: Any) -> SpeculationConfig:
    return read_speculation(ComponentConfig(config, LifecycleLedger(), options=options))


def test_without_a_choice_there_is_no_speculation() -> None:
    assert not _read(EngineConfig()).is_on
    assert not _read(EngineConfig(), spec_n=8, spec_draft=5).is_on
    assert SpeculationConfig().draft_rows(16) == 0


def test_a_draft_model_drafts_four_tokens_at_a_time() -> None:
    assert _read(EngineConfig(), spec_draft="small") == _drafting("small")
    assert _drafting("small").request_tokens == 4
    assert _drafting("small", 7).request_tokens == 7


def test_an_option_wins_over_the_configuration() -> None:
    config = EngineConfig(speculation=_drafting("configured", 2))
    assert _read(config) == _drafting("configured", 2)
    assert _read(config, spec_draft="chosen", spec_n="6") == _drafting("chosen", 6)
    assert _read(config, spec_n="many") == _drafting("configured", 2)
    assert _read(NGRAM, spec_n=3) == SpeculationConfig(SpeculationMethod.NGRAM, None, 3)


def test_no_tokens_are_no_speculation() -> None:
    with pytest.raises(InvalidConfig, match="at least 1, not 0") as caught:
        _read(EngineConfig(), spec_draft="small", spec_n=0)
    assert caught.value.field == "spec_n"


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"method": "draft"}, "speculation.draft_model", "None does not go with the method draft"),
        ({"draft_model": "small"}, "speculation.draft_model", "'small' does not go with the method off"),
        ({"method": "ngram", "draft_model": "small"}, "speculation.draft_model", "does not go with"),
        ({"method": "ngram", "num_tokens": 0}, "speculation.num_tokens", "between 1 and 64, not 0"),
        ({"method": "ngram", "num_tokens": True}, "speculation.num_tokens", "not True"),
        ({"method": "ngram", "step_tokens": 65}, "speculation.step_tokens", "between 1 and 64"),
        ({"method": "guess"}, "speculation.method", "guess"),
        ({"n": 1}, "speculation.n", "no such setting"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused_by_name(
    values: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message) as caught:
        config_from_mapping(EngineConfig, {"speculation": values})
    assert caught.value.field == field


def test_room_for_drafts_is_kept_up_to_a_bound() -> None:
    assert SpeculationConfig(SpeculationMethod.NGRAM, num_tokens=6).draft_rows(2) == 12
    assert SpeculationConfig(SpeculationMethod.NGRAM, num_tokens=6).draft_rows(16) == 32


def test_an_executor_that_breaks_the_same_tokens_law_gets_no_drafts() -> None:
    executor = TransformersExecutor(ScriptedCausalModel(), ExecutorCapacity(16, 32, 256, 258))
    builder = EngineBuilder(NGRAM).with_executor(executor).with_tokenizer(ByteTokenizer())
    with pytest.raises(InvalidConfig, match="leave speculation out") as caught:
        builder.build()
    assert caught.value.field == "speculation"


def test_a_recurrent_state_gets_no_drafts() -> None:
    executor = ScriptedExecutor(
        resource_authority=ResourceAuthority.ENGINE_MANAGED,
        capacity=ExecutorCapacity(16, 4, 64, 258, recurrent_state_bytes=8),
    )
    builder = EngineBuilder(NGRAM).with_executor(executor).with_tokenizer(ByteTokenizer())
    with pytest.raises(InvalidConfig, match="cannot be taken back"):
        builder.build()
    assert executor.num_prepared == 0


@pytest.mark.parametrize("authority", list(ResourceAuthority))
def test_either_authority_may_speculate(authority: ResourceAuthority) -> None:
    executor = ScriptedExecutor(resource_authority=authority)
    engine = EngineBuilder(NGRAM).with_executor(executor).with_tokenizer(ByteTokenizer()).build()
    engine.close()
    assert executor.num_prepared == 1
