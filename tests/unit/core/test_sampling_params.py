"""What may be asked of the choice of tokens."""

from typing import Any

import pytest

from ferrum.core.errors import InvalidRequest
from ferrum.core.sampling_params import SamplingParams


@pytest.mark.parametrize("stop", [None, 5, "x", b"x", (b"x",), [None], ("",), {"x": 1}, ("x",) * 33])
def test_stop_is_a_list_of_few_texts_that_are_not_empty(stop: Any) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        SamplingParams(stop=stop)
    assert refusal.value.param == "stop"


@pytest.mark.parametrize("name", ["max_tokens", "temperature", "top_k", "top_p", "min_p", "seed"])
@pytest.mark.parametrize("value", ["1", True, float("nan"), float("inf"), -(2**64), 2**64, [1]])
def test_numbers_are_numbers_within_their_range(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        SamplingParams(**{name: value})
    assert refusal.value.param == name


RANGES: dict[str, tuple[list[Any], list[Any]]] = {
    "repetition_penalty": ([0.01, 1, 100], [0, 0.0099, 101]),
    "presence_penalty": ([-2, 0, 2], [-2.01, 2.01]),
    "frequency_penalty": ([-2, 0, 2], [-2.01, 2.01]),
    "repeat_last_n": ([0, 64, None], [-1, 1.5]),
    "typical_p": ([1e-9, 1], [0, 1.1]),
    "top_n_sigma": ([0, 1000], [-1, 1001]),
    "xtc_probability": ([0, 1], [-0.1, 1.1]),
    "xtc_threshold": ([0, 1], [-0.1, 1.1]),
    "dry_multiplier": ([0, 100], [-1, 101]),
    "dry_base": ([1, 100], [0.99, 101]),
    "dry_allowed_length": ([1, 50], [0, 1.5]),
    "dry_penalty_last_n": ([0, None], [-1, 0.5]),
    "dry_sequence_breakers": ([(), ("x",)], ["x", ("",), [1], ("x",) * 33]),
    "dynatemp_range": ([0, 100], [-0.1, 101]),
    "dynatemp_exponent": ([0, 100], [-0.1, 101]),
    "mirostat": ([0, 2], [-1, 1, 3, 2.0]),
    "mirostat_tau": ([0.1, 100], [0, -1, 101]),
    "mirostat_eta": ([0, 1], [-0.1, 1.1]),
    "logit_bias": (
        [{}, {5: 100}, {0: -100}],
        [[], {"5": 1}, {-1: 1}, {2**31: 1}, dict.fromkeys(range(1025), 0)],
    ),
    "allowed_token_ids": ([None, (0,), (5, 7)], [(), (-1,), ("5",), 5]),
    "bad_words": ([(), ("x",)], ["x", ("",), (5,), ("x",) * 257]),
    "min_tokens": ([0, 5], [-1, 1.5]),
}


@pytest.mark.parametrize("name", RANGES)
def test_each_rule_takes_its_range_and_nothing_else(name: str) -> None:
    good, bad = RANGES[name]
    for value in good:
        assert getattr(SamplingParams(**{name: value}), name) == value
    wrong: list[Any] = [True, "1", float("nan"), float("inf")]
    for value in [*bad, *wrong]:
        with pytest.raises(InvalidRequest) as refusal:
            SamplingParams(**{name: value})
        assert refusal.value.param == name, value


@pytest.mark.parametrize("bias", [100.5, -101, float("nan"), "1", True])
def test_a_bias_is_refused_with_the_token_it_is_for(bias: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"between -100 and 100|number") as refusal:
        SamplingParams(logit_bias={5: bias})
    assert refusal.value.param == "logit_bias[5]"


def test_no_more_tokens_can_be_the_least_than_the_most() -> None:
    assert SamplingParams(min_tokens=3, max_tokens=3).min_tokens == 3
    with pytest.raises(InvalidRequest, match="at most max_tokens") as refusal:
        SamplingParams(min_tokens=4, max_tokens=3)
    assert refusal.value.param == "min_tokens"
