"""The parts that come with Ferrum, under their names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ferrum.assembly.component_config import ComponentConfig
from ferrum.assembly.component_registry import ComponentMetadata, ComponentRegistry, FunctionFactory
from ferrum.assembly.layer_split import PLAN
from ferrum.assembly.loaded_model import LoadedModel
from ferrum.assembly.model_loading import PlanModel
from ferrum.assembly.stub_executor import StubExecutor
from ferrum.assembly.stub_tokenizer import StubTokenizer
from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.core.errors import InternalError, InvalidConfig
from ferrum.engine.engine import EngineTokenizer
from ferrum.engine.scheduler_maker import SchedulerMaker
from ferrum.execution.executor import Executor
from ferrum.execution.plan_executor import PlanExecutor
from ferrum.runtimes.protocol import LogitsDetail
from ferrum.sampling.sampler import GreedySampler, MultinomialSampler, Sampler
from ferrum.scheduling.scheduler import ContinuousBatchScheduler

_Component = TypeVar("_Component")


class ProcessRegistry:
    """The registry of a process, chosen once: by ``set``, or with Ferrum's own parts by the first ``get``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._registry: ComponentRegistry | None = None

    def get(self) -> ComponentRegistry:
        with self._lock:
            if self._registry is None:
                self._registry = make_registry()
            return self._registry

    def set(self, registry: ComponentRegistry) -> None:
        """Raises InternalError when there is one already: engines may have been built from it."""
        with self._lock:
            if self._registry is not None:
                raise InternalError(
                    "the process's component registry is already set; pass yours to the builder"
                )
            self._registry = registry


_PROCESS = ProcessRegistry()


def default_registry() -> ComponentRegistry:
    """The process's registry; pass your own to EngineBuilder to be independent of it."""
    return _PROCESS.get()


def set_default_registry(registry: ComponentRegistry) -> None:
    """Makes ``registry`` the process's, before anything was built. Raises InternalError afterwards."""
    _PROCESS.set(registry)


def make_registry() -> ComponentRegistry:
    """A new registry with the parts that come with Ferrum."""
    registry = ComponentRegistry()
    registry.tokenizers.register("huggingface", _factory("huggingface", "the model's own", _model_tokenizer))
    registry.tokenizers.register("stub", _factory("stub", "words to numbers", _stub_tokenizer))
    registry.samplers.register("multinomial", _factory("multinomial", "as the request asks", _multinomial))
    registry.samplers.register("greedy", _factory("greedy", "the most likely token", _greedy))
    registry.schedulers.register("continuous", _factory("continuous", "continuous batching", _continuous))
    for name in ("default", "paged"):
        registry.kv_caches.register(name, _factory(name, "blocks that grow with the tokens", _paged_cache))
    registry.executors.register("llm", _factory("llm", "the model's plan on the native runtime", _llm))
    registry.executors.register(
        "transformers", _factory("transformers", "the model as transformers computes it", _transformers)
    )
    registry.executors.register("stub", _factory("stub", "zeros for logits", _stub_executor))
    return registry


def _factory(
    name: str, description: str, function: Callable[[ComponentConfig], _Component]
) -> FunctionFactory[_Component]:
    return FunctionFactory(ComponentMetadata(name, description=description), function)


def _model_of(config: ComponentConfig, component: str) -> LoadedModel:
    if config.model is None:
        raise InvalidConfig(component, "needs a model, and none was given")
    return config.model


def _model_tokenizer(config: ComponentConfig) -> EngineTokenizer:
    return _model_of(config, "tokenizer").tokenizer


def _stub_tokenizer(config: ComponentConfig) -> EngineTokenizer:
    return StubTokenizer()


def _multinomial(config: ComponentConfig) -> Sampler:
    return MultinomialSampler()


def _greedy(config: ComponentConfig) -> Sampler:
    return GreedySampler()


def _continuous(config: ComponentConfig) -> SchedulerMaker:
    return ContinuousBatchScheduler


def _paged_cache(config: ComponentConfig) -> CacheManager:
    """What the configuration says, else what the executor holds."""
    if config.capacity is None:
        raise InvalidConfig("kv_cache", "is made after the executor, which says how much it holds")
    num_blocks = config.engine.kv_cache.num_blocks or config.capacity.num_blocks
    return CacheManager(BlockPool(num_blocks, config.ledger), config.capacity.block_tokens)


def _llm(config: ComponentConfig) -> Executor:
    model = _model_of(config, "executor")
    if not isinstance(model, PlanModel):
        raise InvalidConfig("executor", "'llm' runs models that have a plan, and this one was loaded without")
    if config.layer_split is not None:
        raise InvalidConfig(PLAN, "the native runtime runs all layers on one device; leave the split out")
    detail = LogitsDetail.DIGEST if config.engine.logit_digests else LogitsDetail.NONE
    return PlanExecutor(model.runtime, model.resolved_plan, detail, config.sampler)


def _transformers(config: ComponentConfig) -> Executor:
    # The rare road is imported when it is taken.
    from ferrum.assembly.hugging_face_model import HuggingFaceModel
    from ferrum.execution.transformers_executor import TransformersExecutor

    model = _model_of(config, "executor")
    if not isinstance(model, HuggingFaceModel):
        raise InvalidConfig("executor", "'transformers' runs Hugging Face folders, and this is another model")
    if config.layer_split is not None:
        raise InvalidConfig(PLAN, "'transformers' runs all layers on the CPU; leave the split out")
    if config.engine.logit_digests:
        raise InvalidConfig("logit_digests", "is only there with the native runtime")
    return TransformersExecutor(model.causal_model, model.capacity, config.sampler)


def _stub_executor(config: ComponentConfig) -> Executor:
    return StubExecutor(config.engine.scheduler.max_running_requests, config.sampler)
