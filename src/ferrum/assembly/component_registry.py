"""The tables of parts an engine can be built from: names to factories. Knows no part by name itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ferrum.assembly.component_config import ComponentConfig
from ferrum.cache.cache_manager import CacheManager
from ferrum.core.errors import UnknownComponent
from ferrum.engine.engine import EngineTokenizer
from ferrum.engine.scheduler_maker import SchedulerMaker
from ferrum.execution.executor import Executor
from ferrum.sampling.policy_cache import PolicyCache
from ferrum.sampling.sampler import Sampler

_Component_co = TypeVar("_Component_co", covariant=True)
_Component = TypeVar("_Component")


@dataclass(frozen=True, slots=True)
class ComponentMetadata:
    """What a factory says of itself."""

    name: str = "unknown"
    version: str = "0.0.0"
    description: str = ""
    devices: tuple[str, ...] = ("cpu",)
    capabilities: tuple[str, ...] = ()


class ComponentFactory(Protocol[_Component_co]):
    """Makes one kind of part from the configuration of the engine that will own it."""

    @property
    def metadata(self) -> ComponentMetadata: ...

    def create(self, config: ComponentConfig) -> _Component_co: ...


@dataclass(frozen=True, slots=True)
class FunctionFactory(Generic[_Component]):
    """A factory that is one function."""

    metadata: ComponentMetadata
    function: Callable[[ComponentConfig], _Component]

    def create(self, config: ComponentConfig) -> _Component:
        return self.function(config)


class ComponentTable(Generic[_Component]):
    """Names to factories of one kind; registering a name again replaces it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._factories: dict[str, ComponentFactory[_Component]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._factories))

    def register(self, name: str, factory: ComponentFactory[_Component]) -> None:
        self._factories[name] = factory

    def get(self, name: str) -> ComponentFactory[_Component]:
        """Raises UnknownComponent, which lists the names there are."""
        if name not in self._factories:
            raise UnknownComponent(self.kind, name, self.names)
        return self._factories[name]


def _table(kind: str) -> ComponentTable[_Component]:
    return ComponentTable(kind)


@dataclass(frozen=True, slots=True)
class ComponentRegistry:
    """Five independent tables. Filled by whoever makes it; see ``default_components.default_registry``.

    ``policies`` are shared by the engines that are built from it.
    """

    tokenizers: ComponentTable[EngineTokenizer] = field(default_factory=lambda: _table("tokenizer"))
    samplers: ComponentTable[Sampler] = field(default_factory=lambda: _table("sampler"))
    schedulers: ComponentTable[SchedulerMaker] = field(default_factory=lambda: _table("scheduler"))
    kv_caches: ComponentTable[CacheManager] = field(default_factory=lambda: _table("KV cache"))
    executors: ComponentTable[Executor] = field(default_factory=lambda: _table("executor"))
    policies: PolicyCache = field(default_factory=PolicyCache)
