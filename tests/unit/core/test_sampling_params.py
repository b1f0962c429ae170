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
