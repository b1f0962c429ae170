"""ServerContext: what every route needs, handed to it when the application is put together."""

from __future__ import annotations

from dataclasses import dataclass, field

from ferrum.core.sampling_params import SamplingParams
from ferrum.server.administration import Administration
from ferrum.server.engine_door import EngineDoor
from ferrum.server.lifecycle import ServerLifecycle
from ferrum.server.served_models import ServedModels
from ferrum.server.server_options import ServerOptions
from ferrum.server.session_cache import SessionCache
from ferrum.server.unknown_fields import UnknownFieldLog


@dataclass(frozen=True, slots=True)
class ServerContext:
    """``sampling_defaults`` stand in for the fields a request leaves out. ``administration``: None where no
    admin key was given, ``sessions``: None where clients send whole conversations.
    """

    engine: EngineDoor
    models: ServedModels
    lifecycle: ServerLifecycle
    options: ServerOptions = field(default_factory=ServerOptions)
    sampling_defaults: SamplingParams = field(default_factory=SamplingParams)
    unknown_fields: UnknownFieldLog = field(default_factory=UnknownFieldLog)
    administration: Administration | None = None
    sessions: SessionCache | None = None
