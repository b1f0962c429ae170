"""Makes one part by its name: what a model needs must work, and only an engine without one has stubs."""

from __future__ import annotations

import logging
from typing import TypeVar

from ferrum.assembly.component_config import ComponentConfig
from ferrum.assembly.component_registry import ComponentTable
from ferrum.core.errors import InvalidConfig

STUB = "stub"

_log = logging.getLogger("ferrum.assembly")
_Component = TypeVar("_Component")


def make_for_model(
    kind: str, name: str, table: ComponentTable[_Component], components: ComponentConfig
) -> _Component:
    """A part of an engine that answers for a model, never a stub. Raises InvalidConfig with the cause."""
    if name == STUB:
        raise InvalidConfig(kind, "the stub is for engines without a model; leave its name or the model out")
    factory = table.get(name)
    try:
        return factory.create(components)
    except Exception as error:
        raise InvalidConfig(kind, f"{name!r} cannot be made: {error}") from error


def make_without_model(
    kind: str, name: str, table: ComponentTable[_Component], components: ComponentConfig
) -> _Component:
    """A part of an engine without a model: one that cannot be made becomes a stub, with a warning."""
    factory = table.get(name)
    if name != STUB:
        try:
            return factory.create(components)
        except Exception as error:
            _log.warning("%s %r cannot be made (%s); the stub takes its place", kind, name, error)
    _log.warning("no model: the %s is a stub, and what this engine answers means nothing", kind)
    return table.get(STUB).create(components)
