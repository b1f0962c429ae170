"""Prompts and arrivals: repeatable, with beginnings that nobody's cache holds."""

from __future__ import annotations

import pytest

from ferrum.bench.load.load_shape import LoadShape
from ferrum.bench.statistics import median
from ferrum.core.errors import InvalidConfig


def shape(**changes: int) -> LoadShape:
    return LoadShape(**{"num_requests": 200, "prompt_words": 20, "output_tokens": 5, "seed": 3, **changes})


def test_prompts_have_the_words_asked_for_and_begin_differently() -> None:
    prompts = shape().prompts()
    assert {len(prompt.split()) for prompt in prompts} == {20}
    assert len({prompt.split()[0] for prompt in prompts}) > 195


def test_a_seed_repeats_a_load_and_another_seed_does_not() -> None:
    assert shape().prompts() == shape().prompts()
    assert shape().arrivals(5.0) == shape().arrivals(5.0)
    assert not set(shape().prompts()) & set(shape(seed=4).prompts())
    assert shape().arrivals(5.0) != shape(seed=4).arrivals(5.0)


def test_shared_beginnings_are_shared_and_ends_are_not() -> None:
    prompts = shape(shared_prefix_words=50, num_prefixes=3).prompts(num_warmups=2)
    assert {len(prompt.split()) for prompt in prompts[:2]} == {20}
    beginnings = {tuple(prompt.split()[:50]) for prompt in prompts[2:]}
    assert len(beginnings) == 3
    assert {len(prompt.split()) for prompt in prompts[2:]} == {70}
    assert len({tuple(prompt.split()[50:]) for prompt in prompts[2:]}) == 200


def test_arrivals_are_a_poisson_process() -> None:
    arrivals = shape(num_requests=4000).arrivals(20.0)
    gaps = [later - earlier for earlier, later in zip([0.0, *arrivals], arrivals, strict=False)]
    assert min(gaps) > 0
    assert arrivals[-1] == pytest.approx(200.0, rel=0.1)
    # Exponential gaps have a median of ln 2 of their mean; regular ones would have the mean.
    assert median(gaps) == pytest.approx(0.693 / 20, rel=0.1)


@pytest.mark.parametrize(
    "field", ["num_requests", "prompt_words", "output_tokens", "num_prefixes", "shared_prefix_words"]
)
def test_impossible_shapes_are_refused(field: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        shape(**{field: -1})
    assert caught.value.field == field


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="above 0"):
        shape().arrivals(0.0)
