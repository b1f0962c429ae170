"""A model split over several devices by layers: the plan as a person or a planner writes it, checked."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ferrum.core.errors import InvalidConfig

STRATEGY = "selected_distributed_strategy"
LAYER_SPLIT = "layer_split"
STAGES = "selected_layer_split_stages"
PLAN = "selected_layer_split_plan"
DEVICES = "selected_gpu_devices"
REQUESTED_DEVICES = "requested_gpu_devices"
PIPELINE_MODE = "pipeline_mode"

BACKEND = "cuda-peer"
# Two stages hand work to each other and can compute at once; more would wait in a row.
OVERLAPPED = "overlapped"
OVERLAPPED_STAGES = 2

_FORM = "stageN:cuda:DEVICE:layers=START-END"
_NUM_PARTS = 4
_NUMBER = re.compile(r"\d+", re.ASCII)
_KEYS = ("stage", "device", "layer_start", "layer_end")

_log = logging.getLogger("ferrum.assembly")


@dataclass(frozen=True, slots=True)
class LayerSplitStage:
    """One device and its layers, the end not included."""

    device: int
    layer_start: int
    layer_end: int


@dataclass(frozen=True, slots=True)
class LayerSplitPlan:
    """Stages in the order in which a token passes them. ``is_overlapped``: both compute at once."""

    stages: tuple[LayerSplitStage, ...]
    is_overlapped: bool = False
    backend: str = BACKEND
    tensor_size: int = 1

    @property
    def pipeline_size(self) -> int:
        return len(self.stages)

    @property
    def num_layers(self) -> int:
        return self.stages[-1].layer_end

    def require_layers(self, num_layers: int) -> None:
        """Raises InvalidConfig when the model has another number of layers."""
        if num_layers != self.num_layers:
            raise InvalidConfig(PLAN, f"covers {self.num_layers} layers, but the model has {num_layers}")

    def has_embeddings(self, stage: int) -> bool:
        """Only the first stage turns tokens into vectors."""
        return stage == 0

    def has_head(self, stage: int) -> bool:
        """Only the last stage turns vectors into logits."""
        return stage == self.pipeline_size - 1


def read_layer_split(options: Mapping[str, Any]) -> LayerSplitPlan | None:
    """The plan in a builder's options; None when they choose no layer split.

    ``selected_layer_split_stages`` (a list of documents, inclusive ends) wins over
    ``selected_layer_split_plan`` (stages joined by ";", each stageN:cuda:DEVICE:layers=START-END). Raises
    InvalidConfig naming the option and the stage for anything that is not exactly right.
    """
    if options.get(STRATEGY) != LAYER_SPLIT:
        return None
    stages = _from_documents(options[STAGES]) if STAGES in options else _from_text(options.get(PLAN))
    option = STAGES if STAGES in options else PLAN
    _require_contiguous(stages, option)
    _require_devices(stages, options)
    return LayerSplitPlan(stages, _is_overlapped(stages, options.get(PIPELINE_MODE)))


def _from_documents(documents: object) -> tuple[LayerSplitStage, ...]:
    if not isinstance(documents, Sequence) or isinstance(documents, str):
        raise InvalidConfig(STAGES, f"must be a list of stages, not {documents!r}")
    return tuple(_stage_of(document, position) for position, document in enumerate(documents))


def _stage_of(document: object, position: int) -> LayerSplitStage:
    if not isinstance(document, Mapping) or set(document) != set(_KEYS):
        raise InvalidConfig(STAGES, f"stage {position} must have {', '.join(_KEYS)}, not {document!r}")
    numbers = {key: document[key] for key in _KEYS}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidConfig(STAGES, f"stage {position}: {key} must be an integer from 0, not {value!r}")
    return _stage(STAGES, position, *numbers.values())


def _from_text(plan: object) -> tuple[LayerSplitStage, ...]:
    if not isinstance(plan, str) or not plan.strip():
        raise InvalidConfig(PLAN, f"a layer split needs a plan: stages joined by ';', each {_FORM}")
    return tuple(_parse_stage(text.strip(), position) for position, text in enumerate(plan.split(";")))


def _parse_stage(text: str, position: int) -> LayerSplitStage:
    if not text:
        raise InvalidConfig(PLAN, f"stage {position} is empty")
    parts = text.split(":")
    if len(parts) != _NUM_PARTS:
        raise InvalidConfig(PLAN, f"stage {position} {text!r} has {len(parts)} parts; the form is {_FORM}")
    name, kind, device, layers = parts
    if kind != "cuda":
        raise InvalidConfig(PLAN, f"stage {position} is on {kind!r}; only cuda devices can be named")
    if not name.startswith("stage") or not layers.startswith("layers="):
        raise InvalidConfig(PLAN, f"stage {position} {text!r} is not of the form {_FORM}")
    start, dash, end = layers.removeprefix("layers=").partition("-")
    if not dash:
        raise InvalidConfig(PLAN, f"stage {position}: {layers!r}, expected START-END")
    numbers = {"stage": name.removeprefix("stage"), "device": device, "first layer": start, "last layer": end}
    for what, number in numbers.items():
        if not _NUMBER.fullmatch(number):
            raise InvalidConfig(PLAN, f"stage {position}: {what} must be an integer from 0, not {number!r}")
    return _stage(PLAN, position, *map(int, numbers.values()))


def _stage(option: str, position: int, number: int, device: int, start: int, end: int) -> LayerSplitStage:
    """``end`` is the last layer, as people write it."""
    if number != position:
        raise InvalidConfig(option, f"stage {number} stands at place {position}; stages come in order")
    if end < start:
        raise InvalidConfig(option, f"stage {position} ends at layer {end}, before its start {start}")
    return LayerSplitStage(device, start, end + 1)


def _require_contiguous(stages: Sequence[LayerSplitStage], option: str) -> None:
    if not stages:
        raise InvalidConfig(option, "needs at least one stage")
    expected = 0
    for position, stage in enumerate(stages):
        if stage.layer_start != expected:
            raise InvalidConfig(
                option, f"stage {position} starts at layer {stage.layer_start}; expected start {expected}"
            )
        expected = stage.layer_end


def _require_devices(stages: Sequence[LayerSplitStage], options: Mapping[str, Any]) -> None:
    used, selected = [stage.device for stage in stages], options.get(DEVICES)
    if not isinstance(selected, Sequence) or isinstance(selected, str) or list(selected) != used:
        raise InvalidConfig(
            DEVICES, f"must be the devices of the stages in order, {used}, and is {selected!r}"
        )
    if REQUESTED_DEVICES in options:
        _log.info("devices asked for: %s; chosen: %s", options[REQUESTED_DEVICES], used)


def _is_overlapped(stages: Sequence[LayerSplitStage], mode: object) -> bool:
    if mode == OVERLAPPED and len(stages) != OVERLAPPED_STAGES:
        raise InvalidConfig(PIPELINE_MODE, f"{OVERLAPPED!r} needs exactly two stages, not {len(stages)}")
    return mode == OVERLAPPED
