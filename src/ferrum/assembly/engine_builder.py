"""Puts an engine together from named, pre-built and default parts, and starts it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from ferrum.assembly.component_config import ComponentConfig
from ferrum.assembly.component_making import make_for_model, make_without_model
from ferrum.assembly.component_registry import ComponentRegistry
from ferrum.assembly.default_components import default_registry
from ferrum.assembly.engine_facts import engine_facts
from ferrum.assembly.layer_split import read_layer_split
from ferrum.assembly.lendable_processors import processor_loans
from ferrum.assembly.loaded_model import LoadedModel
from ferrum.assembly.model_loaders import MODEL_LOADERS
from ferrum.assembly.model_loading import LoadOptions, load_model
from ferrum.assembly.model_sources import DefinedModel, ModelSources
from ferrum.assembly.resource_authority import ResourceOverrides, compose_resources
from ferrum.assembly.speculation import make_drafter, read_speculation, require_room_for_drafts
from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.recurrent_state import RecurrentStateManager
from ferrum.core.config import EngineConfig
from ferrum.core.drafting import Drafter
from ferrum.core.errors import InvalidConfig, UnknownComponent
from ferrum.core.events import Observer, Observers, StartUpPrepared
from ferrum.core.ledger import LifecycleLedger
from ferrum.engine.engine import ContinuousBatchEngine, EngineTokenizer
from ferrum.engine.input_processor import ChatEncoder
from ferrum.evidence.open_evidence import EngineFacts, open_evidence
from ferrum.execution.executor import Executor
from ferrum.sampling.sampler import Sampler
from ferrum.weights.progress_reporter import SilentReporter

_log = logging.getLogger("ferrum.assembly")


class EngineBuilder:
    """Collects choices; ``build`` makes the engine, and nothing is made before. Setters return the builder.

    Without choices: the model's tokenizer and executor when there is a model, stubs when there is none; the
    ``multinomial`` sampler; ``paged`` KV blocks; always the continuous-batching scheduler.
    """

    def __init__(self, config: EngineConfig | None = None, registry: ComponentRegistry | None = None) -> None:
        self.config = config or EngineConfig()
        self.registry = registry or default_registry()
        self.options: Mapping[str, Any] = {}
        self.model_sources: ModelSources | None = None
        self.defined_model: DefinedModel | None = None
        self.names: dict[str, str] = {}
        self.tokenizer: EngineTokenizer | None = None
        self.chat_encoder: ChatEncoder | None = None
        self.sampler: Sampler | None = None
        self.kv_cache: CacheManager | None = None
        self.recurrent_states: RecurrentStateManager | None = None
        self.executor: Executor | None = None
        self.scheduler: object | None = None
        self.observers: list[Observer] = []

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """Free settings of components; ``model_path`` names a model when there are no model sources."""
        self.options = dict(options)
        return self

    def with_model_sources(self, sources: ModelSources) -> Self:
        """Loads this model in ``build``; a defined model set before is forgotten."""
        self.model_sources, self.defined_model = sources, None
        return self

    def with_defined_model(self, defined: DefinedModel) -> Self:
        self.model_sources, self.defined_model = defined.sources, defined
        return self

    def with_name(self, kind: str, name: str) -> Self:
        """Chooses a part by its name in the registry; the kinds are those of ``names``."""
        if kind not in _KINDS:
            raise UnknownComponent("kind of component", kind, _KINDS)
        self.names[kind] = name
        return self

    def with_tokenizer(self, tokenizer: EngineTokenizer, chat_encoder: ChatEncoder | None = None) -> Self:
        self.tokenizer, self.chat_encoder = tokenizer, chat_encoder
        return self

    def with_sampler(self, sampler: Sampler) -> Self:
        self.sampler = sampler
        return self

    def with_scheduler(self, scheduler: object) -> Self:
        """Stored and then refused by ``build``: the scheduler comes from ``config.scheduler``."""
        self.scheduler = scheduler
        return self

    def with_kv_cache(self, kv_cache: CacheManager) -> Self:
        self.kv_cache = kv_cache
        return self

    def with_recurrent_states(self, recurrent_states: RecurrentStateManager) -> Self:
        """Counts its leases where the KV cache does: give both the same ledger."""
        self.recurrent_states = recurrent_states
        return self

    def with_executor(self, executor: Executor) -> Self:
        self.executor = executor
        return self

    def with_observer(self, observer: Observer) -> Self:
        self.observers.append(observer)
        return self

    def build(self) -> ContinuousBatchEngine:
        """Makes the parts, then the engine, then proves that it works, and only then hands it out.

        Raises InvalidConfig (a choice that is not accepted, a mixture of resource authorities),
        UnknownComponent, or what loading and start-up raise. Whatever fails, nothing is left running.
        """
        self._refuse_scheduler_overrides()
        components = self._component_config()
        components = self._load_model(components)
        tokenizer, executor = self._make_parts(components)
        observers = list(self.observers)
        try:
            observers += open_evidence(self._facts(components, executor))
            drafter = make_drafter(components, executor)
            engine = self._compose(components, tokenizer, executor, drafter, observers)
        except BaseException:
            executor.close()
            if components.model is not None:
                components.model.close()
            Observers(observers).close()
            raise
        return _start(engine, executor, drafter, Observers(observers))

    @property
    def is_model_mode(self) -> bool:
        return self.model_sources is not None or isinstance(self.options.get("model_path"), str)

    def resolve_name(self, kind: str) -> str:
        """The name a part of this kind is looked up by: the chosen one, or the default."""
        return self.names.get(kind) or (_MODEL_NAMES if self.is_model_mode else _STUB_NAMES)[kind]

    def _refuse_scheduler_overrides(self) -> None:
        if self.scheduler is not None or "scheduler" in self.names:
            raise InvalidConfig("scheduler", "overrides are not accepted; set config.scheduler instead")

    def _component_config(self) -> ComponentConfig:
        """Everything that is known, and wrong, before a part exists. Raises InvalidConfig."""
        chosen = [manager.ledger for manager in (self.kv_cache, self.recurrent_states) if manager is not None]
        components = ComponentConfig(
            engine=self.config,
            ledger=chosen[0] if chosen else LifecycleLedger(),
            options=dict(self.options),
            layer_split=read_layer_split(self.options),
        )
        speculation = read_speculation(components)
        return replace(components, engine=replace(self.config, speculation=speculation))

    def _load_model(self, components: ComponentConfig) -> ComponentConfig:
        """The model, loaded once for tokenizer and executor; not at all when both are there already."""
        if self.defined_model is not None:
            require_room_for_drafts(self.defined_model, components.engine.speculation)
            return _with_model(components, self.defined_model.model)
        if self.tokenizer is not None and self.executor is not None:
            return components
        sources = self.model_sources
        path = components.get_string_option("model_path")
        if sources is None and path is not None:
            sources = ModelSources(path, LoadOptions(engine=components.engine), SilentReporter())
        if sources is None:
            return components
        load = MODEL_LOADERS.get(self.resolve_name("executor"), load_model)
        engine = replace(sources.options.engine, speculation=components.engine.speculation)
        options = replace(sources.options, engine=engine)
        return _with_model(components, load(sources.argument, options, sources.reporter))

    def _make_parts(self, components: ComponentConfig) -> tuple[EngineTokenizer, Executor]:
        """From here on the executor holds the model; when one of them cannot be made, nobody does."""
        try:
            tokenizer = self._make_tokenizer(components)
            return tokenizer, self._make_executor(replace(components, sampler=self._make_sampler(components)))
        except BaseException:
            if components.model is not None:
                components.model.close()
            raise

    def _make_tokenizer(self, components: ComponentConfig) -> EngineTokenizer:
        if self.tokenizer is not None:
            return self.tokenizer
        make = make_for_model if self.is_model_mode else make_without_model
        return make("tokenizer", self.resolve_name("tokenizer"), self.registry.tokenizers, components)

    def _make_sampler(self, components: ComponentConfig) -> Sampler | None:
        """None when the runtime's own sampler does what was chosen."""
        if self.sampler is not None:
            return self.sampler
        name = self.resolve_name("sampler")
        return None if name == "multinomial" else self.registry.samplers.get(name).create(components)

    def _make_executor(self, components: ComponentConfig) -> Executor:
        if self.executor is None:
            make = make_for_model if self.is_model_mode else make_without_model
            return make("executor", self.resolve_name("executor"), self.registry.executors, components)
        if components.sampler is not None:
            raise InvalidConfig("sampler", "a pre-built executor brings its own; give it the sampler instead")
        return self.executor

    def _facts(self, components: ComponentConfig, executor: Executor) -> EngineFacts:
        sources, path = self.model_sources, components.get_string_option("model_path")
        name = type(executor).__name__ if self.executor is not None else self.resolve_name("executor")
        return engine_facts(components, path if sources is None else sources.argument, name, executor)

    def _compose(
        self,
        components: ComponentConfig,
        tokenizer: EngineTokenizer,
        executor: Executor,
        drafter: Drafter | None,
        observers: Sequence[Observer],
    ) -> ContinuousBatchEngine:
        def make_kv_cache() -> CacheManager:
            with_capacity = replace(components, capacity=executor.capacity)
            return self.registry.kv_caches.get(self.resolve_name("kv_cache")).create(with_capacity)

        return ContinuousBatchEngine(
            config=components.engine,
            tokenizer=tokenizer,
            chat_encoder=self._chat_encoder(components),
            executor=executor,
            resources=compose_resources(
                executor,
                components.ledger,
                self._resource_overrides(components.engine),
                make_kv_cache,
                components.engine.recurrent_state_max_slots,
            ),
            make_scheduler=self.registry.schedulers.get("continuous").create(components),
            observers=observers,
            policies=self.registry.policies,
            drafter=drafter,
            loans=processor_loans(components.model),
        )

    def _resource_overrides(self, config: EngineConfig) -> ResourceOverrides:
        return ResourceOverrides(
            kv_cache=self.kv_cache,
            kv_cache_name=self.names.get("kv_cache"),
            recurrent_states=self.recurrent_states,
            has_prefix_cache=config.prefix_cache,
        )

    def _chat_encoder(self, components: ComponentConfig) -> ChatEncoder | None:
        if self.tokenizer is not None:
            return self.chat_encoder
        model = components.model
        return model.encode_chat if model is not None and model.chat_template is not None else None


_KINDS = ("tokenizer", "sampler", "scheduler", "kv_cache", "executor")
_STUB_NAMES = {"tokenizer": "stub", "sampler": "multinomial", "kv_cache": "paged", "executor": "stub"}
_MODEL_NAMES = {"tokenizer": "huggingface", "sampler": "multinomial", "kv_cache": "paged", "executor": "llm"}


def _with_model(components: ComponentConfig, model: LoadedModel) -> ComponentConfig:
    """The sizes that were fitted to memory replace those that were wished for."""
    return replace(components, model=model, engine=model.memory.applied_to(components.engine))


def _start(
    engine: ContinuousBatchEngine, executor: Executor, drafter: Drafter | None, observers: Observers
) -> ContinuousBatchEngine:
    """Runs the start-up checks of executor and drafter once; the engine is handed out when they passed."""
    started = time.monotonic()
    try:
        executor.prepare_startup()
        if drafter is not None:
            drafter.prepare_startup()
        observers.on(StartUpPrepared(time.monotonic() - started))
    except BaseException:
        _shut_down(engine.close)
        raise
    return engine


def _shut_down(close: Callable[[float], None]) -> None:
    """The start-up error is what the caller must see, so one on the way out is only logged."""
    try:
        close(0.0)
    except Exception:
        _log.exception("shutting down after a failed start failed too")
