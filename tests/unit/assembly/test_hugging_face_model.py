from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from ferrum.assembly.default_components import make_registry
from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.assembly.hugging_face_model import (
    PROCESS_BYTES,
    CacheSize,
    HuggingFaceModel,
    load_hugging_face_model,
    measure_cache,
)
from ferrum.assembly.memory_fit import ExplicitSizes
from ferrum.assembly.model_loaders import find_loader
from ferrum.assembly.model_loading import LoadOptions, load_model
from ferrum.assembly.model_sources import DefinedModel, ModelSources
from ferrum.assembly.start_model import start_model
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import (
    InvalidConfig,
    ModelNotFound,
    ResourceExhausted,
    TokenizerError,
    UnknownComponent,
)
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.request import ChatPrompt, InferenceRequest
from ferrum.core.sampling_params import SamplingParams
from ferrum.execution.transformers_executor import TransformersExecutor
from ferrum.testing.scripted_causal_model import ScriptedCausalModel
from ferrum.weights.progress_reporter import SilentReporter
from hugging_face_folder import END_ID, VOCABULARY, write_folder
from tiny_chat_model import write_tiny_chat_model

MEBIBYTE = 1024 * 1024


def _options(folder: Path, config: EngineConfig | None = None, **changes: object) -> LoadOptions:
    """On a system that tells nothing of its memory, unless ``config`` names a budget."""
    return LoadOptions(
        threads=1,
        engine=config or EngineConfig(),
        model_directory=folder / "models",
        cache_directory=folder / "cache",
        system_root=folder / "system",
        **changes,
    )


class _Maker:
    """Makes scripted models, and says which."""

    def __init__(self, context_length: int | None = 256) -> None:
        self.context_length = context_length
        self.made: list[ScriptedCausalModel] = []

    def __call__(self, folder: Path, num_threads: int) -> ScriptedCausalModel:
        self.made.append(ScriptedCausalModel(VOCABULARY, self.context_length))
        return self.made[-1]


def _load(
    folder: Path, config: EngineConfig | None = None, maker: _Maker | None = None, **changes: object
) -> HuggingFaceModel:
    options = _options(folder, config, **changes)
    return load_hugging_face_model(
        str(write_folder(folder / "m")), options, SilentReporter(), maker or _Maker()
    )


def _defined(model: HuggingFaceModel, folder: Path) -> DefinedModel:
    return DefinedModel(ModelSources("m", _options(folder), SilentReporter()), model)


def test_the_cache_is_measured_not_looked_up() -> None:
    assert measure_cache(ScriptedCausalModel()) == CacheSize(token_bytes=8, state_bytes=64)


def test_a_folder_becomes_a_model_with_sizes_that_fit(tmp_path: Path) -> None:
    model = _load(tmp_path)
    assert model.name == "m"
    assert model.capacity.context_length == 256
    assert model.capacity.num_blocks * 32 == 16 * 256
    assert (model.capacity.kv_bytes_per_token, model.capacity.recurrent_state_bytes) == (8, 64)
    assert model.bundle.weight_bytes == 700


def test_tokenizer_and_executor_share_one_bundle_and_one_model(tmp_path: Path) -> None:
    defined = _defined(_load(tmp_path), tmp_path)
    registry = make_registry()
    builder = (
        EngineBuilder(registry=registry).with_defined_model(defined).with_name("executor", "transformers")
    )
    assert builder.defined_model is not None
    assert builder.defined_model.bundle is defined.model.bundle
    engine = builder.build()
    states = engine.resources.recurrent_states
    assert states is not None
    request = InferenceRequest(
        "a", ChatPrompt([{"role": "user", "content": "hi"}]), SamplingParams(max_tokens=5, temperature=0.0)
    )
    (first,), (second,) = engine.generate([request]), engine.generate([request])
    assert first.token_ids == second.token_ids
    assert states.stats.used_slots == 0
    engine.close()


def test_the_executor_is_made_of_the_model_that_was_loaded(tmp_path: Path) -> None:
    maker = _Maker()
    defined = _defined(_load(tmp_path, maker=maker), tmp_path)
    builder = EngineBuilder().with_defined_model(defined).with_name("executor", "transformers")
    engine = builder.build()
    assert isinstance(engine._executor, TransformersExecutor)
    engine.close()
    (model,) = maker.made
    assert model.is_closed


def test_an_architecture_without_a_limit_gets_a_usual_context(tmp_path: Path) -> None:
    assert _load(tmp_path, maker=_Maker(None)).capacity.context_length == 4096
    config = EngineConfig(max_model_len=10_000)
    assert _load(tmp_path, config, _Maker(None)).capacity.context_length == 10_000


def test_more_context_than_the_model_has_is_refused_and_the_model_freed(tmp_path: Path) -> None:
    maker = _Maker()
    with pytest.raises(InvalidConfig, match="the model's own 256, not 257"):
        _load(tmp_path, EngineConfig(max_model_len=257), maker)
    assert maker.made[0].is_closed


def test_sizes_shrink_to_the_memory_there_is(tmp_path: Path) -> None:
    config = EngineConfig(memory_bytes=PROCESS_BYTES + MEBIBYTE)
    model = _load(tmp_path, config, _Maker(2**20))
    changed = {change.name for change in model.memory.changes}
    assert "context_length" in changed
    assert model.memory.total_bytes <= PROCESS_BYTES + MEBIBYTE
    assert model.capacity.context_length < 2**20


def test_explicit_sizes_fit_or_fail(tmp_path: Path) -> None:
    config = EngineConfig(memory_bytes=PROCESS_BYTES + MEBIBYTE, max_model_len=2**20)
    maker = _Maker(2**20)
    with pytest.raises(ResourceExhausted, match="lower --context-length to"):
        _load(tmp_path, config, maker, explicit=ExplicitSizes(context_length=True))
    assert maker.made[0].is_closed


def test_weights_that_do_not_fit_are_refused_before_they_are_read(tmp_path: Path) -> None:
    maker = _Maker()
    with pytest.raises(ResourceExhausted, match="raise --memory, or use a smaller model"):
        _load(tmp_path, EngineConfig(memory_bytes=MEBIBYTE), maker)
    assert maker.made == []


def test_memory_that_ends_after_all_is_one_line(tmp_path: Path) -> None:
    def make(folder: Path, num_threads: int) -> ScriptedCausalModel:
        raise MemoryError

    with pytest.raises(ResourceExhausted, match="use a smaller model"):
        load_hugging_face_model(str(write_folder(tmp_path / "m")), _options(tmp_path), SilentReporter(), make)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    file = write_tiny_chat_model(tmp_path / "m.gguf")
    for argument in (str(file), "smollm2:135m"):
        with pytest.raises(ModelNotFound, match=r"takes a folder with config\.json"):
            load_hugging_face_model(argument, _options(tmp_path), SilentReporter(), _Maker())


def test_a_broken_tokenizer_is_named_before_weights_are_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_hugging_face_model(str(folder), _options(tmp_path), SilentReporter(), _Maker())


def test_settings_of_the_native_runtime_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="keeps its own cache") as caught:
        _load(tmp_path, EngineConfig(kv_dtype=KvDtype.INT8))
    assert caught.value.field == "kv_dtype"
    model = _load(tmp_path)
    config = EngineConfig(logit_digests=True)
    builder = EngineBuilder(config).with_defined_model(_defined(model, tmp_path))
    with pytest.raises(InvalidConfig, match="only there with the native runtime"):
        builder.with_name("executor", "transformers").build()


def test_an_executor_refuses_the_other_kind_of_model(tmp_path: Path) -> None:
    model = _load(tmp_path)
    with pytest.raises(InvalidConfig, match="'llm' runs models that have a plan"):
        EngineBuilder().with_defined_model(_defined(model, tmp_path)).build()
    config = EngineConfig(scheduler=SchedulerConfig(max_running_requests=1))
    argument = str(write_tiny_chat_model(tmp_path / "m.gguf"))
    plan_model = load_model(argument, _options(tmp_path, config), SilentReporter())
    sources = ModelSources(argument, _options(tmp_path), SilentReporter())
    builder = EngineBuilder().with_defined_model(DefinedModel(sources, plan_model))
    with pytest.raises(InvalidConfig, match="runs Hugging Face folders"):
        builder.with_name("executor", "transformers").build()


def test_end_tokens_come_from_the_configuration_where_nothing_else_names_them(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", {"eos_token_id": [5, 9999]})
    load = partial(load_hugging_face_model, str(folder), _options(tmp_path), SilentReporter(), _Maker())
    assert load().tokenizer.eos_ids == {5, END_ID}
    (folder / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert load().tokenizer.eos_ids == {7, END_ID}


def test_a_folder_of_safetensors_says_what_runs_it(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    with pytest.raises(ModelNotFound, match="run it with --executor transformers"):
        load_model(str(folder), _options(tmp_path), SilentReporter())


def test_an_executor_that_runs_no_models_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(UnknownComponent, match="no executor named 'vllm'; there are: llm, transformers"):
        start_model("m", _options(tmp_path), SilentReporter(), executor="vllm")
    with pytest.raises(ModelNotFound, match="takes a folder"):
        find_loader("transformers")("m", _options(tmp_path), SilentReporter())
