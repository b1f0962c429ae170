from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ferrum.assembly.component_config import ComponentConfig
from ferrum.assembly.component_registry import ComponentMetadata, FunctionFactory
from ferrum.assembly.create_engine import create_defined_model_engine, create_engine, create_model_engine
from ferrum.assembly.default_components import make_registry
from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.assembly.model_loading import LoadOptions, load_model
from ferrum.assembly.model_sources import DefinedModel, ModelSources
from ferrum.cache.cache_manager import CacheManager
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import ModelNotFound
from ferrum.core.request import InferenceRequest, TextPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.engine.scheduler_maker import SchedulerMaker
from ferrum.execution.executor import Executor
from ferrum.execution.plan_executor import PlanExecutor
from ferrum.scheduling.scheduler import ContinuousBatchScheduler
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor
from ferrum.weights.progress_reporter import SilentReporter
from ferrum.weights.source_bundle import SourceRole
from tiny_chat_model import write_tiny_chat_model

CONFIG = EngineConfig(max_model_len=64, scheduler=SchedulerConfig(max_running_requests=2))


def _sources(folder: Path) -> ModelSources:
    options = LoadOptions(threads=1, engine=CONFIG, model_directory=folder, cache_directory=folder)
    return ModelSources(str(write_tiny_chat_model(folder / "m.gguf")), options, SilentReporter())


def _defined(folder: Path) -> DefinedModel:
    sources = _sources(folder)
    return DefinedModel(sources, load_model(sources.argument, sources.options, sources.reporter))


def _answer(engine: ContinuousBatchEngine) -> tuple[int, ...]:
    sampling = SamplingParams(max_tokens=6, temperature=0.0)
    (result,) = engine.generate([InferenceRequest("a", TextPrompt("hello world"), sampling)])
    engine.close()
    return result.token_ids


def test_a_configuration_alone_makes_an_engine_of_stubs() -> None:
    assert _answer(create_engine(EngineConfig())) == (0,) * 6


def test_sources_and_a_loaded_model_make_the_same_engine(tmp_path: Path) -> None:
    by_sources = create_model_engine(_sources(tmp_path))
    by_model = create_defined_model_engine(_defined(tmp_path))
    assert by_sources.context_length == by_model.context_length == 64
    assert by_sources.request_capacity == by_model.request_capacity == 2 + 512
    assert _answer(by_sources) == _answer(by_model)


def test_sources_that_lead_nowhere_make_no_engine(tmp_path: Path) -> None:
    sources = replace(_sources(tmp_path), argument=str(tmp_path / "none.gguf"))
    with pytest.raises(ModelNotFound):
        create_model_engine(sources)


def test_tokenizer_and_executor_get_the_very_model_and_bundle_that_were_defined(tmp_path: Path) -> None:
    registry, seen = make_registry(), []

    def spy(table: object, name: str) -> None:
        made = table.get(name).create

        def create(config: ComponentConfig) -> object:
            seen.append(config.model)
            return made(config)

        table.register(name, FunctionFactory(ComponentMetadata(), create))

    spy(registry.tokenizers, "huggingface")
    spy(registry.executors, "llm")
    defined = _defined(tmp_path)
    builder = EngineBuilder(CONFIG, registry).with_defined_model(defined)
    builder.build().close()
    assert len(seen) == 2
    assert all(model is defined.model for model in seen)
    assert all(model.bundle is defined.bundle for model in seen)
    (file,) = defined.bundle.of_role(SourceRole.WEIGHTS)
    assert file.path == tmp_path / "m.gguf"


class _Order(ScriptedExecutor):
    """Notes when it is prepared among the other things that happen."""

    def __init__(self, happened: list[str]) -> None:
        super().__init__()
        self.happened = happened

    def prepare_startup(self) -> None:
        self.happened.append("executor prepared")
        super().prepare_startup()


def test_an_engine_is_whole_before_it_is_prepared() -> None:
    registry, happened = make_registry(), []

    def make_executor(config: ComponentConfig) -> Executor:
        happened.append("executor made")
        return _Order(happened)

    def make_scheduler(config: ComponentConfig) -> SchedulerMaker:
        def make(*arguments: object, **more: object) -> ContinuousBatchScheduler:
            happened.append("scheduler made")
            return ContinuousBatchScheduler(*arguments, **more)

        return make

    registry.executors.register("mine", FunctionFactory(ComponentMetadata(), make_executor))
    registry.schedulers.register("continuous", FunctionFactory(ComponentMetadata(), make_scheduler))
    builder = EngineBuilder(registry=registry).with_name("executor", "mine").with_tokenizer(ByteTokenizer())
    builder.build().close()
    assert happened == ["executor made", "scheduler made", "executor prepared"]


def test_the_sizes_that_fit_are_those_of_scheduler_cache_and_engine(tmp_path: Path) -> None:
    """A model defined with smaller sizes than the builder's configuration asks for."""
    registry, seen = make_registry(), []

    def make_scheduler(config: ComponentConfig) -> SchedulerMaker:
        def make(limits: SchedulerConfig, cache: CacheManager, *more: object) -> ContinuousBatchScheduler:
            seen.append(limits)
            return ContinuousBatchScheduler(limits, cache, *more)

        return make

    registry.schedulers.register("continuous", FunctionFactory(ComponentMetadata(), make_scheduler))
    builder = EngineBuilder(EngineConfig(), registry).with_defined_model(_defined(tmp_path))
    engine = builder.build()
    (limits,) = seen
    assert limits.max_running_requests == 2
    assert engine.context_length == 64
    assert isinstance(engine._executor, PlanExecutor)
    engine.close()
