from __future__ import annotations

from typing import Any

import pytest

from ferrum.assembly.component_config import ComponentConfig
from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.assembly.speculation import DraftChoice, read_draft
from ferrum.core.config import EngineConfig
from ferrum.core.errors import InvalidConfig
from ferrum.core.ledger import LifecycleLedger
from ferrum.execution.executor import ResourceAuthority
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor


def _read(config: EngineConfig, **options: Any) -> DraftChoice | None:
    return read_draft(ComponentConfig(config, LifecycleLedger(), options=options), executor="llm")


def test_without_a_draft_there_is_no_speculation() -> None:
    assert _read(EngineConfig()) is None
    assert _read(EngineConfig(spec_n=7), spec_n=8, spec_draft=5) is None


def test_the_draft_runs_on_the_executor_of_the_target_four_tokens_at_a_time() -> None:
    assert _read(EngineConfig(), spec_draft="small") == DraftChoice("small", 4, "llm")
    assert _read(EngineConfig(spec_draft="small")) == DraftChoice("small", 4, "llm")


def test_an_option_wins_over_the_configuration() -> None:
    config = EngineConfig(spec_draft="configured", spec_n=2)
    assert _read(config) == DraftChoice("configured", 2, "llm")
    assert _read(config, spec_draft="chosen", spec_n="6") == DraftChoice("chosen", 6, "llm")
    assert _read(config, spec_n="many") == DraftChoice("configured", 2, "llm")


def test_no_tokens_are_no_speculation() -> None:
    with pytest.raises(InvalidConfig, match="at least 1, not 0") as caught:
        _read(EngineConfig(), spec_draft="small", spec_n=0)
    assert caught.value.field == "spec_n"


@pytest.mark.parametrize("authority", list(ResourceAuthority))
@pytest.mark.parametrize(
    ("config", "options"), [(EngineConfig(spec_draft="small"), {}), (EngineConfig(), {"spec_draft": "small"})]
)
def test_a_draft_is_refused_by_name_before_anything_is_made(
    authority: ResourceAuthority, config: EngineConfig, options: dict[str, str]
) -> None:
    executor = ScriptedExecutor(resource_authority=authority)
    builder = EngineBuilder(config).with_executor(executor).with_tokenizer(ByteTokenizer())
    with pytest.raises(InvalidConfig, match=r"'small'.*not built yet") as caught:
        builder.with_options(options).build()
    assert caught.value.field == "spec_draft"
    assert executor.num_prepared == 0
