from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ferrum.assembly.component_config import ComponentConfig
from ferrum.assembly.component_registry import ComponentMetadata, ComponentTable, FunctionFactory
from ferrum.assembly.default_components import ProcessRegistry, default_registry, make_registry
from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.model_sources import ModelSources
from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.recurrent_state import RecurrentStateManager
from ferrum.core.config import EngineConfig, KvCacheConfig
from ferrum.core.errors import InternalError, InvalidConfig, ModelError, ModelNotFound, UnknownComponent
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.request import InferenceRequest, TextPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.execution.executor import Executor, ResourceAuthority
from ferrum.sampling.sampler import GreedySampler
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor
from ferrum.weights.progress_reporter import SilentReporter


def _cache(num_blocks: int = 8, block_tokens: int = 4) -> CacheManager:
    return CacheManager(BlockPool(num_blocks, LifecycleLedger()), block_tokens)


def _managed() -> ScriptedExecutor:
    return ScriptedExecutor(resource_authority=ResourceAuthority.ENGINE_MANAGED)


def _factory(function: object) -> FunctionFactory:
    return FunctionFactory(ComponentMetadata(), function)


def _sources(argument: str, folder: Path) -> ModelSources:
    return ModelSources(
        argument, LoadOptions(model_directory=folder, cache_directory=folder), SilentReporter()
    )


def test_a_fresh_builder_has_no_choices_and_the_default_names() -> None:
    builder = EngineBuilder()
    assert builder.names == {}
    assert builder.registry is default_registry()
    kinds = ("tokenizer", "sampler", "kv_cache", "executor")
    assert [builder.resolve_name(kind) for kind in kinds] == ["stub", "multinomial", "paged", "stub"]


def test_a_model_changes_the_default_names(tmp_path: Path) -> None:
    by_sources = EngineBuilder().with_model_sources(_sources("smollm2:135m", tmp_path))
    by_option = EngineBuilder().with_options({"model_path": "model.gguf"})
    for builder in (by_sources, by_option):
        assert [builder.resolve_name(kind) for kind in ("tokenizer", "executor")] == ["huggingface", "llm"]
    assert not EngineBuilder().with_options({"model_path": 7}).is_model_mode


def test_choices_are_kept_as_they_are_given() -> None:
    tokenizer, executor, cache, sampler = ByteTokenizer(), _managed(), _cache(), GreedySampler()
    states, scheduler = RecurrentStateManager(cache.ledger), object()
    builder = (
        EngineBuilder()
        .with_tokenizer(tokenizer)
        .with_executor(executor)
        .with_kv_cache(cache)
        .with_sampler(sampler)
        .with_recurrent_states(states)
        .with_scheduler(scheduler)
        .with_name("kv_cache", "default")
    )
    assert builder.tokenizer is tokenizer
    assert builder.executor is executor
    assert builder.kv_cache is cache
    assert builder.sampler is sampler
    assert builder.recurrent_states is states
    assert builder.scheduler is scheduler
    assert builder.resolve_name("kv_cache") == "default"


def test_model_sources_forget_the_defined_model(tmp_path: Path) -> None:
    builder = EngineBuilder()
    builder.defined_model = object()
    sources = _sources("smollm2:135m", tmp_path)
    builder.with_model_sources(sources)
    assert builder.defined_model is None
    assert builder.model_sources is sources


def test_a_defined_model_brings_its_sources() -> None:
    defined = _Defined()
    builder = EngineBuilder().with_defined_model(defined)
    assert builder.defined_model is defined
    assert builder.model_sources is defined.sources
    assert builder.is_model_mode


def test_an_unknown_kind_of_component_is_named() -> None:
    with pytest.raises(UnknownComponent, match="kv_cache"):
        EngineBuilder().with_name("kvcache", "paged")


def test_a_build_without_a_model_answers_with_stubs_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        engine = EngineBuilder().build()
    for kind in ("tokenizer", "executor"):
        assert f"no model: the {kind} is a stub, and what this engine answers means nothing" in caplog.text
    request = InferenceRequest(
        "a", TextPrompt("one two three"), SamplingParams(max_tokens=3, temperature=0.0)
    )
    (result,) = engine.generate([request])
    assert result.text == " token_0 token_0 token_0"
    assert result.usage.prompt_tokens == 3
    engine.close()


@pytest.mark.parametrize("choose", [{"name": "fifo"}, {"scheduler": object()}])
def test_scheduler_overrides_are_refused_before_anything_is_made(choose: dict[str, object]) -> None:
    executor = ScriptedExecutor()
    builder = EngineBuilder().with_executor(executor).with_tokenizer(ByteTokenizer())
    if "name" in choose:
        builder.with_name("scheduler", "fifo")
    else:
        builder.with_scheduler(choose["scheduler"])
    with pytest.raises(InvalidConfig, match=r"config\.scheduler") as caught:
        builder.build()
    assert caught.value.field == "scheduler"
    assert executor.num_prepared == 0


def test_start_up_is_prepared_exactly_once() -> None:
    executor = ScriptedExecutor()
    engine = EngineBuilder().with_executor(executor).with_tokenizer(ByteTokenizer()).build()
    assert executor.num_prepared == 1
    assert engine.status().is_ready
    engine.close()
    assert executor.is_closed


def test_a_failed_start_shuts_down_and_keeps_its_own_error(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ScriptedExecutor):
        def prepare_startup(self) -> None:
            raise ModelError("the self-test failed")

        def close(self) -> None:
            super().close()
            raise OSError("closing failed too")

    executor = Broken()
    with caplog.at_level(logging.ERROR), pytest.raises(ModelError, match="the self-test failed"):
        EngineBuilder().with_executor(executor).with_tokenizer(ByteTokenizer()).build()
    assert executor.is_closed
    assert "closing failed too" in caplog.text


def test_a_missing_model_is_an_error_and_never_a_stub(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        EngineBuilder().with_model_sources(_sources(str(tmp_path / "none.gguf"), tmp_path)).build()


def test_a_part_that_cannot_be_made_is_a_stub_without_a_model(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        engine = EngineBuilder().with_name("tokenizer", "huggingface").build()
    assert "the stub takes its place" in caplog.text
    engine.close()


def test_a_part_that_cannot_be_made_is_an_error_with_a_model(tmp_path: Path) -> None:
    registry = make_registry()
    registry.tokenizers.register("mine", _factory(lambda config: 1 / 0))
    builder = (
        EngineBuilder(registry=registry).with_name("tokenizer", "mine").with_executor(ScriptedExecutor())
    )
    defined = _Defined()
    builder.with_defined_model(defined)
    with pytest.raises(InvalidConfig, match="tokenizer: 'mine' cannot be made: division by zero"):
        builder.build()
    assert defined.model.num_closed == 1


@pytest.mark.parametrize("kind", ["tokenizer", "executor"])
def test_a_model_is_never_answered_for_by_a_stub(kind: str) -> None:
    builder = EngineBuilder().with_defined_model(_Defined())
    if kind == "executor":
        builder.with_tokenizer(ByteTokenizer())
    with pytest.raises(InvalidConfig, match="the stub is for engines without a model") as caught:
        builder.with_name(kind, "stub").build()
    assert caught.value.field == kind


class _Fit:
    def applied_to(self, config: EngineConfig) -> EngineConfig:
        return config


class _Model:
    memory = _Fit()
    num_closed = 0

    def close(self) -> None:
        self.num_closed += 1


class _Defined:
    """A defined model of which nobody should need more than its sizes."""

    def __init__(self) -> None:
        self.sources = object()
        self.model = _Model()


def test_sampler_and_kv_cache_failures_are_not_replaced() -> None:
    registry = make_registry()
    registry.samplers.register("mine", _factory(lambda config: 1 / 0))
    registry.kv_caches.register("mine", _factory(lambda config: 1 / 0))
    for kind in ("sampler", "kv_cache"):
        with pytest.raises(ZeroDivisionError):
            EngineBuilder(registry=registry).with_name(kind, "mine").build()


def test_a_sampler_by_name_reaches_the_executor() -> None:
    engine = EngineBuilder().with_name("sampler", "greedy").build()
    sampling = SamplingParams(max_tokens=4, temperature=9.0, seed=3)
    (result,) = engine.generate([InferenceRequest("a", TextPrompt("hi"), sampling)])
    assert result.token_ids == (0, 0, 0, 0)
    engine.close()


def test_a_pre_built_executor_takes_no_sampler() -> None:
    builder = EngineBuilder().with_executor(ScriptedExecutor()).with_sampler(GreedySampler())
    with pytest.raises(InvalidConfig, match="pre-built executor"):
        builder.build()


@pytest.mark.parametrize("by_name", [True, False])
def test_a_plan_runtime_executor_refuses_a_kv_cache_before_one_is_made(by_name: bool) -> None:
    registry = make_registry()
    made: list[ComponentConfig] = []
    registry.kv_caches.register("spy", _factory(made.append))
    executor = ScriptedExecutor()
    builder = EngineBuilder(registry=registry).with_executor(executor)
    builder = builder.with_name("kv_cache", "spy") if by_name else builder.with_kv_cache(_cache())
    with pytest.raises(InvalidConfig, match="owns its KV arena"):
        builder.build()
    assert made == []
    assert executor.is_closed


def test_a_plan_runtime_executor_refuses_a_state_manager_before_a_cache_is_made() -> None:
    executor = ScriptedExecutor()
    builder = EngineBuilder().with_executor(executor)
    builder.with_recurrent_states(RecurrentStateManager(LifecycleLedger()))
    with pytest.raises(InvalidConfig, match="owns its state; it takes no state manager") as caught:
        builder.build()
    assert caught.value.field == "recurrent_states"
    assert executor.is_closed
    assert executor.num_prepared == 0


def test_a_plan_runtime_engine_has_no_kv_manager_of_its_own() -> None:
    engine = EngineBuilder().with_executor(ScriptedExecutor()).with_tokenizer(ByteTokenizer()).build()
    assert engine.resources.authority is ResourceAuthority.PLAN_RUNTIME
    assert engine.resources.recurrent_states is None
    with pytest.raises(InternalError, match="plan-runtime"):
        _ = engine.resources.kv_manager
    engine.close()


def test_an_engine_managed_engine_has_managers_of_its_own() -> None:
    config = EngineConfig(recurrent_state_max_slots=2)
    engine = EngineBuilder(config).with_executor(_managed()).with_tokenizer(ByteTokenizer()).build()
    states = engine.resources.recurrent_states
    assert states is not None
    assert states.max_slots == 2
    assert engine.resources.kv_manager.ledger is states.ledger
    engine.close()


def test_a_state_manager_that_was_given_is_the_engines() -> None:
    states = RecurrentStateManager(LifecycleLedger(), max_slots=5)
    builder = EngineBuilder().with_executor(_managed()).with_tokenizer(ByteTokenizer())
    engine = builder.with_recurrent_states(states).build()
    assert engine.resources.recurrent_states is states
    assert engine.resources.kv_manager.ledger is states.ledger
    engine.close()


def test_managers_with_two_ledgers_are_refused() -> None:
    builder = EngineBuilder().with_executor(_managed()).with_kv_cache(_cache())
    builder.with_recurrent_states(RecurrentStateManager(LifecycleLedger()))
    with pytest.raises(InvalidConfig, match="in one ledger"):
        builder.build()


def test_resources_of_the_other_authority_are_refused() -> None:
    class Undecided(ScriptedExecutor):
        """Says one authority while resources are composed, and the other to the engine."""

        num_asked = 0

        @property
        def resource_authority(self) -> ResourceAuthority:
            self.num_asked += 1
            authorities = list(ResourceAuthority)
            return authorities[0] if self.num_asked > 1 else authorities[1]

        @resource_authority.setter
        def resource_authority(self, value: ResourceAuthority) -> None:
            """ScriptedExecutor sets it once."""

    with pytest.raises(InvalidConfig, match="composed for engine-managed"):
        EngineBuilder().with_executor(Undecided()).build()


def test_a_plan_runtime_executor_without_its_plan_is_refused_before_a_cache_is_made() -> None:
    executor = ScriptedExecutor()
    executor.resolved_plan = None
    with pytest.raises(InvalidConfig, match="authoritative ResolvedModelPlan"):
        EngineBuilder().with_executor(executor).build()
    assert executor.num_prepared == 0


def test_an_engine_managed_executor_gets_the_cache_that_was_given() -> None:
    cache = _cache()
    builder = EngineBuilder().with_executor(_managed()).with_tokenizer(ByteTokenizer()).with_kv_cache(cache)
    engine = builder.build()
    assert engine.context_length == 32
    engine.generate([InferenceRequest("a", TextPrompt("hello"), SamplingParams(max_tokens=4))])
    assert cache.ledger.outstanding() == {}
    engine.close()


def test_an_engine_managed_executor_gets_a_cache_of_the_configured_size() -> None:
    config = EngineConfig(kv_cache=KvCacheConfig(num_blocks=5))
    engine = EngineBuilder(config).with_executor(_managed()).with_tokenizer(ByteTokenizer()).build()
    assert engine.status().num_kv_blocks == 5
    engine.close()


@pytest.mark.parametrize(
    ("cache", "problem"),
    [(_cache(block_tokens=8), "blocks of 8 tokens"), (_cache(num_blocks=65), "65 is more")],
)
def test_a_cache_that_the_executor_cannot_address_is_refused(cache: CacheManager, problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        EngineBuilder().with_executor(_managed()).with_kv_cache(cache).build()


def test_a_miss_lists_what_there_is() -> None:
    with pytest.raises(
        UnknownComponent, match="no sampler named 'gredy'; there are: greedy, multinomial"
    ) as caught:
        make_registry().samplers.get("gredy")
    assert (caught.value.kind, caught.value.known) == ("sampler", ("greedy", "multinomial"))


def test_registering_a_name_again_replaces_it() -> None:
    table: ComponentTable[Executor] = ComponentTable("executor")
    first, second = _factory(lambda config: ScriptedExecutor()), _factory(lambda config: _managed())
    table.register("x", first)
    table.register("x", second)
    assert table.get("x") is second
    assert table.names == ("x",)


def test_the_default_registry_is_made_once_and_others_are_independent() -> None:
    assert default_registry() is default_registry()
    mine = make_registry()
    mine.executors.register("mine", _factory(lambda config: ScriptedExecutor()))
    assert "mine" not in default_registry().executors.names


def test_a_factory_says_nothing_of_itself_by_default() -> None:
    metadata = ComponentMetadata()
    assert (metadata.name, metadata.version, metadata.devices) == ("unknown", "0.0.0", ("cpu",))
    assert make_registry().executors.get("llm").metadata.name == "llm"


def test_the_process_has_one_registry_set_once() -> None:
    process = ProcessRegistry()
    mine = make_registry()
    process.set(mine)
    assert process.get() is mine
    with pytest.raises(InternalError, match="already set"):
        process.set(make_registry())
    assert process.get() is mine


def test_a_registry_in_use_cannot_be_replaced() -> None:
    process = ProcessRegistry()
    first = process.get()
    with pytest.raises(InternalError):
        process.set(make_registry())
    assert process.get() is first


@pytest.mark.parametrize("table", ["tokenizers", "samplers", "schedulers", "kv_caches", "executors"])
def test_every_table_lists_what_it_has(table: str) -> None:
    names = getattr(make_registry(), table).names
    with pytest.raises(UnknownComponent) as caught:
        getattr(make_registry(), table).get("nonsense")
    assert caught.value.known == names
    assert all(name in str(caught.value) for name in names)


LAYER_SPLIT = {
    "selected_distributed_strategy": "layer_split",
    "selected_layer_split_plan": "stage0:cuda:0:layers=0-1;stage1:cuda:1:layers=2-3",
    "selected_gpu_devices": [0, 1],
}


def test_a_layer_split_reaches_the_parts() -> None:
    registry = make_registry()
    made: list[ComponentConfig] = []

    def make(config: ComponentConfig) -> Executor:
        made.append(config)
        return ScriptedExecutor()

    registry.executors.register("spy", _factory(make))
    builder = EngineBuilder(registry=registry).with_name("executor", "spy").with_tokenizer(ByteTokenizer())
    builder.with_options(LAYER_SPLIT).build().close()
    (config,) = made
    assert config.layer_split is not None
    assert config.layer_split.num_layers == 4


def test_a_wrong_layer_split_is_refused_before_anything_is_made() -> None:
    registry = make_registry()
    made: list[ComponentConfig] = []
    for table in (registry.executors, registry.tokenizers):
        table.register("spy", _factory(made.append))
    builder = EngineBuilder(registry=registry).with_name("executor", "spy").with_name("tokenizer", "spy")
    automatic = {"selected_layer_split_plan": "stage0:cuda:0:layers=auto"}
    with pytest.raises(InvalidConfig, match="expected START-END"):
        builder.with_options(LAYER_SPLIT | automatic).build()
    assert made == []


def test_options_that_do_not_convert_are_absent() -> None:
    options = {"count": "7", "word": "seven", "number": 7}
    config = ComponentConfig(EngineConfig(), LifecycleLedger(), options=options)
    assert config.get_option("count", int) == 7
    assert config.get_option("word", int) is None
    assert config.get_option("none", int) is None
    assert config.get_string_option("word") == "seven"
    assert config.get_string_option("number") is None
