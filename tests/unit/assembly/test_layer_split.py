from __future__ import annotations

import logging
from typing import Any

import pytest

from ferrum.assembly.layer_split import LayerSplitPlan, LayerSplitStage, read_layer_split
from ferrum.core.errors import InvalidConfig

TWO_STAGES = "stage0:cuda:0:layers=0-11; stage1:cuda:2:layers=12-23"


def _options(**changes: Any) -> dict[str, Any]:
    options = {
        "selected_distributed_strategy": "layer_split",
        "selected_layer_split_plan": TWO_STAGES,
        "selected_gpu_devices": [0, 2],
    }
    return options | changes


def _documents(*stages: tuple[Any, Any, Any, Any]) -> list[dict[str, Any]]:
    return [
        dict(zip(("stage", "device", "layer_start", "layer_end"), stage, strict=True)) for stage in stages
    ]


def _refusal(options: dict[str, Any]) -> InvalidConfig:
    with pytest.raises(InvalidConfig) as caught:
        read_layer_split(options)
    return caught.value


def test_a_plan_of_two_stages_is_a_pipeline_of_half_open_ranges() -> None:
    plan = read_layer_split(_options())
    assert plan == LayerSplitPlan((LayerSplitStage(0, 0, 12), LayerSplitStage(2, 12, 24)))
    assert (plan.backend, plan.pipeline_size, plan.tensor_size, plan.num_layers) == ("cuda-peer", 2, 1, 24)
    assert [plan.has_embeddings(stage) for stage in (0, 1)] == [True, False]
    assert [plan.has_head(stage) for stage in (0, 1)] == [False, True]


@pytest.mark.parametrize("strategy", [None, "tensor_parallel", 7])
def test_another_strategy_is_no_layer_split(strategy: object) -> None:
    options = _options(selected_distributed_strategy=strategy, selected_layer_split_plan="nonsense")
    assert read_layer_split(options) is None


def test_documents_win_over_the_text() -> None:
    stages = _documents((0, 0, 0, 3), (1, 2, 4, 4))
    plan = read_layer_split(
        _options(selected_layer_split_stages=stages, selected_layer_split_plan="nonsense")
    )
    assert plan == LayerSplitPlan((LayerSplitStage(0, 0, 4), LayerSplitStage(2, 4, 5)))


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (None, "needs a plan"),
        (7, "needs a plan"),
        ("  ", "needs a plan"),
        ("stage0:cuda:0:layers=0-1;;stage2:cuda:2:layers=2-3", "stage 1 is empty"),
        ("stage0:cuda:0:layers=0-1;", "stage 1 is empty"),
        ("stage0:cuda:layers=0-1", "has 3 parts"),
        ("stage0:cuda:0:layers=0-1:x", "has 5 parts"),
        ("stage0:cpu:0:layers=0-1", "on 'cpu'"),
        ("0:cuda:0:layers=0-1", "not of the form"),
        ("stage0:cuda:0:0-1", "not of the form"),
        ("stage1:cuda:0:layers=0-1", "stage 1 stands at place 0"),
        ("stage:cuda:0:layers=0-1", "stage must be an integer"),
        ("stage0:cuda:-1:layers=0-1", "device must be an integer from 0"),
        ("stage0:cuda:0:layers=auto", "expected START-END"),
        ("stage0:cuda:0:layers=a-1", "first layer must be an integer"),
        ("stage0:cuda:0:layers=0-1.5", "last layer must be an integer"),
        ("stage0:cuda:0:layers=0--1", "last layer must be an integer"),
        ("stage0:cuda:0:layers=0-²", "last layer must be an integer"),
        ("stage0:cuda:0:layers=3-2", "ends at layer 2, before its start 3"),
        ("stage0:cuda:0:layers=1-2", "starts at layer 1; expected start 0"),
        ("stage0:cuda:0:layers=0-3;stage1:cuda:2:layers=5-8", "starts at layer 5; expected start 4"),
        ("stage0:cuda:0:layers=0-3;stage1:cuda:2:layers=3-8", "starts at layer 3; expected start 4"),
    ],
)
def test_a_plan_that_is_not_exactly_right_is_refused_by_name(plan: object, problem: str) -> None:
    refusal = _refusal(_options(selected_layer_split_plan=plan))
    assert refusal.field == "selected_layer_split_plan"
    assert problem in refusal.problem


@pytest.mark.parametrize(
    ("stages", "problem"),
    [
        ([], "at least one stage"),
        ("stage0", "must be a list"),
        ([7], "must have stage, device, layer_start, layer_end"),
        ([{"stage": 0}], "must have"),
        (_documents((0, 0, 0, True)), "layer_end must be an integer"),
        (_documents((0, 0, -1, 3)), "layer_start must be an integer from 0"),
        (_documents((0, "0", 0, 3)), "device must be an integer"),
        (_documents((1, 0, 0, 3)), "stands at place 0"),
        (_documents((0, 0, 0, 3), (1, 2, 5, 6)), "expected start 4"),
    ],
)
def test_documents_are_held_to_the_same_rules(stages: object, problem: str) -> None:
    refusal = _refusal(_options(selected_layer_split_stages=stages))
    assert refusal.field == "selected_layer_split_stages"
    assert problem in refusal.problem


@pytest.mark.parametrize("devices", [[2, 0], [0], [0, 2, 3], None, "02", ["0", "2"]])
def test_the_devices_chosen_are_those_of_the_stages_in_order(devices: object) -> None:
    refusal = _refusal(_options(selected_gpu_devices=devices))
    assert refusal.field == "selected_gpu_devices"
    assert "[0, 2]" in refusal.problem


def test_devices_that_were_asked_for_are_only_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert read_layer_split(_options(requested_gpu_devices=[7])) is not None
    assert "[7]" in caplog.text


def test_overlapping_needs_exactly_two_stages() -> None:
    plan = read_layer_split(_options(pipeline_mode="overlapped"))
    assert plan is not None
    assert plan.is_overlapped
    one = _options(selected_layer_split_plan="stage0:cuda:0:layers=0-1", selected_gpu_devices=[0])
    assert _refusal(one | {"pipeline_mode": "overlapped"}).field == "pipeline_mode"


def test_a_plan_covers_every_layer_of_the_model() -> None:
    plan = read_layer_split(_options())
    assert plan is not None
    plan.require_layers(24)
    with pytest.raises(InvalidConfig, match="covers 24 layers, but the model has 30"):
        plan.require_layers(30)
