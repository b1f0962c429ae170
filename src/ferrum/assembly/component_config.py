"""What a component factory is told about the engine its part is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ferrum.assembly.layer_split import LayerSplitPlan
from ferrum.assembly.loaded_model import LoadedModel
from ferrum.core.config import EngineConfig
from ferrum.core.ledger import LifecycleLedger
from ferrum.execution.executor import ExecutorCapacity
from ferrum.sampling.sampler import Sampler

_Option = TypeVar("_Option", int, float, str)


@dataclass(frozen=True, slots=True)
class ComponentConfig:
    """The engine's configuration and what was built before this component.

    model        the loaded model in model mode, None without one; tokenizer and executor share it
    sampler      a sampler that replaces the runtime's own; None = the runtime chooses
    capacity     what the executor holds; known when the KV cache is made
    ledger       where the engine's leases are counted
    options      free settings of components, by name
    layer_split  the plan that splits the model over devices, checked; None = one device
    """

    engine: EngineConfig
    ledger: LifecycleLedger
    device: str = "cpu"
    options: Mapping[str, Any] = field(default_factory=dict)
    model: LoadedModel | None = None
    sampler: Sampler | None = None
    capacity: ExecutorCapacity | None = None
    layer_split: LayerSplitPlan | None = None

    def get_option(self, name: str, kind: type[_Option]) -> _Option | None:
        """The option as ``kind``; None when it is absent or does not convert."""
        if name not in self.options:
            return None
        try:
            return kind(self.options[name])
        except (TypeError, ValueError):
            return None

    def get_string_option(self, name: str) -> str | None:
        """The option if it is a string; None otherwise."""
        value = self.options.get(name)
        return value if isinstance(value, str) else None
