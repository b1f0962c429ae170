"""A value that a sampling option does not take is refused under the option's name."""

from __future__ import annotations

import pytest

from ferrum.cli.sampling_options import OPTIONS, SamplingOption, read_sampling
from ferrum.core.errors import InvalidConfig

NUMBERS = [option for option in OPTIONS if option.kind in (int, float)]


@pytest.mark.parametrize("option", NUMBERS, ids=lambda option: option.flags[0])
def test_a_number_out_of_range_is_refused_under_its_option(option: SamplingOption) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_sampling({option.field: option.kind(-(10**30))})

    assert caught.value.field == option.flags[0]
    assert caught.value.problem
