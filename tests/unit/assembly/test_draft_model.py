"""A draft model is loaded with the model that it drafts for, fits it, shares its memory and ends with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ferrum.assembly.create_engine import create_model_engine
from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.assembly.model_loading import LoadOptions, PlanModel, load_model
from ferrum.assembly.model_sources import DefinedModel, ModelSources
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.constraint import Constraint
from ferrum.core.errors import InvalidConfig, ModelError
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult, TokenPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.execution.speculation.model_drafter import ModelDrafter
from ferrum.weights.progress_reporter import SilentReporter
from ferrum.weights.tensor_types import TensorType
from tiny_chat_model import write_tiny_chat_model
from tiny_models import llama_metadata, random_tensor, write_tiny_llama
from tiny_vocabularies import byte_level_values

CONFIG = EngineConfig(max_model_len=128, scheduler=SchedulerConfig(max_running_requests=2))
PROMPT = TokenPrompt(tuple(range(40, 60)) * 2)


def _drafting(model: str | Path, config: EngineConfig = CONFIG) -> EngineConfig:
    return replace(config, speculation=SpeculationConfig(SpeculationMethod.DRAFT, str(model)))


def _options(folder: Path, config: EngineConfig) -> LoadOptions:
    return LoadOptions(threads=1, engine=config, model_directory=folder, cache_directory=folder)


def _load(folder: Path, config: EngineConfig) -> PlanModel:
    return load_model(
        str(write_tiny_chat_model(folder / "m.gguf")), _options(folder, config), SilentReporter()
    )


def _engine(folder: Path, config: EngineConfig) -> ContinuousBatchEngine:
    model = str(write_tiny_chat_model(folder / "m.gguf"))
    return create_model_engine(ModelSources(model, _options(folder, config), SilentReporter()))


def _answer(engine: ContinuousBatchEngine, **sampling: object) -> InferenceResult:
    # Whatever this machine takes for drafting, it pays.
    drafter = _drafter(engine)
    if drafter is not None:
        drafter._clock = lambda: 0.0
    params = SamplingParams(max_tokens=40, temperature=0.7, seed=5, ignore_eos=True, **sampling)
    (result,) = engine.generate([InferenceRequest("a", PROMPT, params)])
    engine.close()
    return result


def _drafter(engine: ContinuousBatchEngine) -> ModelDrafter | None:
    drafter = None if engine._speculation is None else engine._speculation._drafter
    return drafter if isinstance(drafter, ModelDrafter) else None


def _longer_vocabulary(path: Path, num_more: int) -> Path:
    """The tiny model's vocabulary, filled up."""
    more = [f"<pad{number}>" for number in range(num_more)]
    values = byte_level_values()
    values["tokenizer.ggml.tokens"] = [*values["tokenizer.ggml.tokens"], *more]
    types = np.array([*values["tokenizer.ggml.token_type"], *(3 for _ in more)], dtype=np.int32)
    values["tokenizer.ggml.token_type"] = types
    shape = (len(types), llama_metadata()["llama.embedding_length"])
    return write_tiny_llama(
        path,
        metadata={**llama_metadata(), **values},
        more_tensors={
            "token_embd.weight": random_tensor(np.random.default_rng(1), TensorType.F32, shape, 0.2)
        },
    )


def test_a_draft_is_loaded_with_the_model_and_changes_nothing(tmp_path: Path) -> None:
    draft = write_tiny_chat_model(tmp_path / "draft.gguf")
    plain = _answer(_engine(tmp_path, CONFIG))
    drafted = _answer(_engine(tmp_path, _drafting(draft)))
    assert drafted.token_ids == plain.token_ids
    assert drafted.draft_use.accepted == drafted.draft_use.drafted > 10


SAMPLINGS: dict[str, dict[str, object]] = {
    "plain": {},
    "masks": {"bad_words": ("a", "b"), "min_tokens": 3, "logit_bias": {70: 3.0}},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.4},
    "dry": {"dry_multiplier": 0.8, "dry_allowed_length": 1},
    "limits": {"xtc_probability": 0.5, "typical_p": 0.9, "top_n_sigma": 2.0, "dynatemp_range": 0.3},
    "mirostat": {"mirostat": 2},
    "logprobs": {"logprobs": 3, "top_k": 20},
    "regex": {"constraint": Constraint.regex("([a-f]{2}, ){5,9}")},
    "schema": {"constraint": Constraint.json_schema({"type": "array", "items": {"enum": ["one", "two"]}})},
}


@pytest.mark.parametrize("drafts_by", ["a longer vocabulary", "itself", "n-grams"])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_whatever_chooses_tokens_chooses_the_same_with_drafts(
    tmp_path: Path, name: str, drafts_by: str
) -> None:
    sampling = SAMPLINGS[name]
    if drafts_by == "n-grams":
        config = replace(CONFIG, speculation=SpeculationConfig(SpeculationMethod.NGRAM))
    elif drafts_by == "itself":
        config = _drafting(write_tiny_chat_model(tmp_path / "draft.gguf"))
    else:
        config = _drafting(_longer_vocabulary(tmp_path / "longer.gguf", 50))
    plain = _answer(_engine(tmp_path, CONFIG), **sampling)
    drafted = _answer(_engine(tmp_path, config), **sampling)
    assert drafted.token_ids == plain.token_ids
    assert drafted.logprobs == plain.logprobs
    assert (drafted.text, drafted.finish_reason) == (plain.text, plain.finish_reason)
    if drafts_by == "itself":
        # What was drafted behind the end does not count.
        behind = 0 if drafted.finish_reason is FinishReason.LENGTH else 3
        assert drafted.draft_use.accepted >= drafted.draft_use.drafted - behind
        assert (drafted.draft_use.drafted > 0) == (name != "mirostat")


def test_a_draft_with_other_words_is_refused_with_the_first_of_them(tmp_path: Path) -> None:
    values = byte_level_values()
    values["tokenizer.ggml.tokens"] = list(values["tokenizer.ggml.tokens"])
    values["tokenizer.ggml.tokens"][7] = "seven"
    draft = write_tiny_llama(tmp_path / "other.gguf", metadata={**llama_metadata(), **values})
    with pytest.raises(InvalidConfig, match=r"its token 7 is 'seven'.*same family") as caught:
        _load(tmp_path, _drafting(draft))
    assert caught.value.field == "spec_draft"


def test_a_draft_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"draft model 'nowhere' cannot be used: .*not found") as caught:
        _load(tmp_path, _drafting("nowhere"))
    assert caught.value.field == "spec_draft"


def test_memory_is_fitted_to_both_together(tmp_path: Path) -> None:
    draft = write_tiny_chat_model(tmp_path / "draft.gguf")
    alone, both = _load(tmp_path, CONFIG).memory, _load(tmp_path, _drafting(draft)).memory
    assert both.kv_bytes_per_token == 2 * alone.kv_bytes_per_token
    assert both.total_bytes > alone.total_bytes
    # Enough for one, too little for both: sizes shrink.
    short = replace(_drafting(draft), memory_bytes=alone.total_bytes)
    model = _load(tmp_path, short)
    assert model.memory.total_bytes <= alone.total_bytes
    assert model.memory.sizes.batch_tokens < alone.sizes.batch_tokens
    assert model.draft is not None
    assert model.draft.runtime.num_blocks == model.runtime.num_blocks
    assert model.resolved_plan.kv_bytes_per_token == alone.kv_bytes_per_token


def test_the_draft_of_a_shorter_context_keeps_its_own(tmp_path: Path) -> None:
    draft = write_tiny_chat_model(tmp_path / "draft.gguf", context_length=50)
    model = _load(tmp_path, _drafting(draft))
    assert model.draft is not None
    assert (model.runtime.context_length, model.draft.runtime.context_length) == (128, 50)


def test_both_start_up_checks_run_and_a_failure_ends_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = write_tiny_chat_model(tmp_path / "draft.gguf")
    prepared: list[ModelDrafter] = []

    def fail(drafter: ModelDrafter) -> None:
        prepared.append(drafter)
        raise ModelError("the draft's weights are damaged")

    monkeypatch.setattr(ModelDrafter, "prepare_startup", fail)
    with pytest.raises(ModelError, match="the draft's weights"):
        _engine(tmp_path, _drafting(draft))
    (drafter,) = prepared
    with pytest.raises(RuntimeError, match="closed"):
        drafter._executor.prepare_startup()


def test_closing_the_engine_frees_the_draft(tmp_path: Path) -> None:
    engine = _engine(tmp_path, _drafting(write_tiny_chat_model(tmp_path / "draft.gguf")))
    drafter = _drafter(engine)
    assert drafter is not None
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        drafter._executor.prepare_startup()


def test_an_option_of_the_builder_names_a_draft(tmp_path: Path) -> None:
    model = str(write_tiny_chat_model(tmp_path / "m.gguf"))
    sources = ModelSources(model, _options(tmp_path, CONFIG), SilentReporter())
    builder = EngineBuilder(CONFIG).with_model_sources(sources)
    engine = builder.with_options({"spec_draft": model, "spec_n": 2}).build()
    assert _drafter(engine) is not None
    assert engine._speculation is not None
    assert engine._speculation.num_tokens == 2
    engine.close()


def test_a_model_that_was_loaded_without_a_draft_gets_none_later(tmp_path: Path) -> None:
    sources = ModelSources("m", _options(tmp_path, CONFIG), SilentReporter())
    model = _load(tmp_path, CONFIG)
    builder = EngineBuilder(CONFIG).with_defined_model(DefinedModel(sources, model))
    with pytest.raises(InvalidConfig, match="load it with the same configuration"):
        builder.with_options({"spec_draft": "small"}).build()
    model.close()
