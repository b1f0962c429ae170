"""Puts ``ferrum serve`` together: the address, the model, its engine, the HTTP server."""

from __future__ import annotations

import logging
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from ferrum.assembly.memory_fit import ExplicitSizes
from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import start_model
from ferrum.cache.saved_prefix_folder import SavedPrefixFolder
from ferrum.cli.exit_on_stall import ExitOnStall
from ferrum.cli.json_output import require_writable
from ferrum.cli.lasting_objects import lasting_objects
from ferrum.cli.late_progress import LateDownloadProgress
from ferrum.cli.model_options import start_up_lines
from ferrum.cli.pin_options import PinSettings
from ferrum.cli.prefill_options import PrefillSettings
from ferrum.cli.speculation_options import speculation_line
from ferrum.cli.streams import say
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import InternalError
from ferrum.core.evidence_config import EvidenceConfig
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.scheduling_policy import SchedulingPolicy
from ferrum.core.speculation_config import SpeculationConfig
from ferrum.core.token_policy_level import TokenPolicyLevel
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.engine.saved_pins import SavedPins
from ferrum.server.admin_key import AdminKey
from ferrum.server.administration import Administration
from ferrum.server.http_server import HttpServer
from ferrum.server.lifecycle import ServerLifecycle
from ferrum.server.listening_socket import bind_socket, socket_url
from ferrum.server.open_files import allow_many_connections
from ferrum.server.served_models import ServedModels
from ferrum.server.server_context import ServerContext
from ferrum.server.server_options import MEBIBYTE, ServerOptions
from ferrum.server.session_cache import SessionCache, SessionLimits

log = logging.getLogger("ferrum.server")

_WARM_UP_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The options of ``ferrum serve``. Without ``names`` the model is served under its own.

    ``max_running``, ``max_batched_tokens`` None: as many as usual, if memory allows.
    """

    model: str
    executor: str
    host: str
    port: int
    names: tuple[str, ...]
    max_running: int | None
    max_decode_stretch: float
    max_waiting: int
    max_waiting_tokens: int
    max_batched_tokens: int | None
    prefill: PrefillSettings
    scheduling_policy: SchedulingPolicy
    has_fair_tenants: bool
    stall_after_s: float
    exits_on_stall: bool
    max_body_mib: int
    drain_s: float
    cors_origins: tuple[str, ...]
    template_source: str | None
    threads: int | None
    context_length: int | None
    kv_dtype: KvDtype
    token_policy: TokenPolicyLevel
    memory_bytes: int | None
    speculation: SpeculationConfig
    has_prefix_cache: bool
    explains_cache: bool
    has_sessions: bool
    max_sessions: int
    session_tokens: int
    pins: PinSettings
    evidence: EvidenceConfig


def serve_session(settings: ServeSettings) -> None:
    """Serves until a signal. Raises FerrumError when the address, the options or the model cannot be used."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    # It tells when it starts and stops; so do we.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    options = ServerOptions(
        max_body_bytes=settings.max_body_mib * MEBIBYTE,
        drain_s=settings.drain_s,
        cors_origins=settings.cors_origins,
        explains_cache=settings.explains_cache,
    )
    load_options = _load_options(settings)
    _require_places(settings.evidence)
    session_limits = SessionLimits(settings.max_sessions, settings.session_tokens)
    pins = settings.pins
    # Before the model is loaded, as they may be refused.
    admin_key = None if pins.admin_key is None else AdminKey(pins.admin_key)
    folder = None if pins.folder is None else SavedPrefixFolder(pins.folder, pins.most_bytes)
    allow_many_connections()
    with bind_socket(settings.host, settings.port) as bound:
        say(f"loading {settings.model}")
        started_at = time.monotonic()
        observers = (ExitOnStall(),) if settings.exits_on_stall else ()
        with lasting_objects():
            running = start_model(
                settings.model, load_options, LateDownloadProgress(), settings.executor, observers
            )
        # Reading the vocabulary for constraints would hold streams up: now there are none, or hardly any.
        warming_up = threading.Timer(_WARM_UP_AFTER_S, _warm_up, (running.engine,))
        warming_up.daemon = True
        warming_up.start()
        try:
            say(f"loaded in {time.monotonic() - started_at:.1f} s")
            for line in (*start_up_lines(running.model), speculation_line(settings.speculation)):
                say(line)
            names = settings.names or (running.model.name,)
            models = ServedModels(names, int(time.time()), running.engine.context_length)
            saved = None if folder is None else SavedPins(running.engine.pins, folder)
            if saved is not None and pins.restores:
                _restore(saved)
            sessions = None
            if settings.has_sessions:
                sessions = SessionCache(session_limits.within(running.engine.context_length))
            administration = None
            if admin_key is not None:
                administration = Administration(admin_key, running.engine.pins, saved)
            context = ServerContext(
                running.engine,
                models,
                ServerLifecycle(),
                options,
                administration=administration,
                sessions=sessions,
            )
            url = socket_url(bound)
            HttpServer(context).run(bound, lambda: say(f"serving {', '.join(names)} at {url}/v1"))
        finally:
            warming_up.cancel()
            running.engine.close(0.0)
        if running.engine.death_reason is not None:
            raise InternalError(running.engine.death_reason)
    say("ended")


def _restore(saved: SavedPins) -> None:
    """Says what came back and what did not; a file that cannot be used keeps nobody from serving."""
    pinned, refused = saved.restore_all()
    num_tokens = sum(len(pin.token_ids) for pin in pinned)
    say(f"restored {len(pinned)} pinned prefixes, {num_tokens} tokens")
    for name, error in refused:
        say(f"not restored: {name}: {error}")


def _warm_up(engine: ContinuousBatchEngine) -> None:
    try:
        engine.warm_up()
    except Exception as error:
        # Nothing is lost: the first request that needs it tries again, and a bug of ours shows its traceback.
        log.warning("constraints are not prepared yet: %s: %s", type(error).__name__, error)


def _require_places(evidence: EvidenceConfig) -> None:
    """Before the model is loaded. Raises InvalidConfig for a journal that cannot be written."""
    for option, path in (
        ("--profile-jsonl", evidence.profile_jsonl),
        ("--scheduler-trace-jsonl", evidence.scheduler_trace_jsonl),
    ):
        require_writable(None if path is None else Path(path), option)


def _load_options(settings: ServeSettings) -> LoadOptions:
    usual = SchedulerConfig()
    max_running = usual.max_running_requests if settings.max_running is None else settings.max_running
    # Every running request needs a token of its own in each step.
    batched_tokens = settings.max_batched_tokens
    if batched_tokens is None:
        batched_tokens = max(usual.max_num_batched_tokens, max_running)
    scheduler = SchedulerConfig(
        max_running_requests=max_running,
        max_decode_stretch=settings.max_decode_stretch,
        max_waiting_requests=settings.max_waiting,
        max_waiting_tokens=settings.max_waiting_tokens,
        prefill_first_until_active=settings.prefill.prefill_first_until_active,
        prefill_step_chunk=settings.prefill.prefill_step_chunk,
        active_decode_prefill_chunk=settings.prefill.active_decode_prefill_chunk,
        policy=settings.scheduling_policy,
        fair_tenants=settings.has_fair_tenants,
        max_num_batched_tokens=batched_tokens,
    )
    engine = EngineConfig(
        max_model_len=settings.context_length,
        kv_dtype=settings.kv_dtype,
        token_policy=settings.token_policy,
        memory_bytes=settings.memory_bytes,
        speculation=settings.speculation,
        prefix_cache=settings.has_prefix_cache,
        stall_after_s=settings.stall_after_s,
        scheduler=scheduler,
        evidence=settings.evidence,
    )
    explicit = ExplicitSizes(
        context_length=settings.context_length is not None,
        sequences=settings.max_running is not None,
        batch_tokens=settings.max_batched_tokens is not None,
    )
    return LoadOptions(
        threads=settings.threads,
        chat_template=settings.template_source,
        engine=engine,
        explicit=explicit,
    )
