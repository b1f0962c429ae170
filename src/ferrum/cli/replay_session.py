"""Puts ``ferrum replay-bundle`` together: the bundle, the model it names, one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ferrum.assembly.engine_facts import model_selection
from ferrum.assembly.loaded_model import LoadedModel
from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import start_model
from ferrum.cli.late_progress import LateDownloadProgress
from ferrum.core.config import EngineConfig, SchedulerConfig, config_from_mapping
from ferrum.core.errors import FerrumError, UnusableBundle
from ferrum.evidence.bundle_files import BACKEND, CONFIG
from ferrum.evidence.replay import ReplayReport, replay
from ferrum.evidence.replay_bundle import ReplayBundle, read_bundle


def replay_session(path: Path, model: str | None, threads: int | None) -> ReplayReport:
    """Loads the model and runs the request. Raises UnusableBundle for a bundle that is damaged or another
    model's, and what loading raises.
    """
    bundle = read_bundle(path)
    argument = model or bundle.backend.model
    if argument is None:
        raise UnusableBundle(str(path), BACKEND, "names no model; say with --model where it is")
    options = LoadOptions(threads=threads, engine=replay_config(bundle))
    running = start_model(argument, options, LateDownloadProgress(), bundle.backend.executor)
    try:
        notes = compare_models(bundle, running.model)
        return replay(bundle, lambda request: running.engine.generate([request])[0], notes)
    finally:
        running.engine.close(0.0)


def replay_config(bundle: ReplayBundle) -> EngineConfig:
    """The recorded configuration, for one request: what decides its bits is kept, sizes may be smaller."""
    values: Mapping[str, Any] = {name: value for name, value in bundle.config.items() if name != "evidence"}
    try:
        recorded = config_from_mapping(EngineConfig, values)
    except FerrumError as error:
        raise UnusableBundle(str(bundle.path), CONFIG, str(error)) from None
    return replace(
        recorded,
        memory_bytes=None,
        scheduler=SchedulerConfig(max_running_requests=1),
        logit_digests=bool(bundle.logit_digests),
        prefix_cache=False,
    )


def compare_models(bundle: ReplayBundle, model: LoadedModel) -> list[str]:
    """What to know of the comparison. Raises UnusableBundle when the weights or the plan are others."""
    recorded, loaded = bundle.backend, model_selection(model)
    for name, there, here in (
        ("weights_digest", recorded.weights_digest, loaded.weights_digest),
        ("plan_hash", recorded.plan_hash, loaded.plan_hash),
    ):
        if there != here:
            problem = f"was recorded with another model: {name} {there}, and this one has {here}"
            raise UnusableBundle(str(bundle.path), BACKEND, problem)
    if recorded.numerics_id != loaded.numerics_id:
        return [
            f"the arithmetic was {recorded.numerics_id!r} and is {loaded.numerics_id!r}: tokens may differ"
        ]
    return []
