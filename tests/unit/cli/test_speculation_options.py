from __future__ import annotations

import pytest

from ferrum.cli.speculation_options import speculation_config, speculation_line
from ferrum.core.errors import InvalidConfig
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod

NGRAM, DRAFT, OFF = SpeculationMethod.NGRAM, SpeculationMethod.DRAFT, SpeculationMethod.OFF


@pytest.mark.parametrize(
    ("arguments", "config", "line"),
    [
        ((None, None, None), SpeculationConfig(), "speculation: off"),
        ((OFF, None, 3), SpeculationConfig(OFF, None, 3), "speculation: off"),
        (
            (NGRAM, None, None),
            SpeculationConfig(NGRAM),
            "speculation: n-grams, up to 10 tokens at a time",
        ),
        (
            (None, "small", None),
            SpeculationConfig(DRAFT, "small"),
            "speculation: drafts of small, up to 4 tokens at a time",
        ),
        (
            (DRAFT, "small", 7),
            SpeculationConfig(DRAFT, "small", 7),
            "speculation: drafts of small, up to 7 tokens at a time",
        ),
    ],
)
def test_what_the_options_mean(
    arguments: tuple[SpeculationMethod | None, str | None, int | None],
    config: SpeculationConfig,
    line: str,
) -> None:
    assert speculation_config(*arguments) == config
    assert speculation_line(config) == line


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ((NGRAM, "small", None), "--draft"),
        ((OFF, "small", None), "--draft"),
        ((DRAFT, None, None), "--speculate"),
        ((NGRAM, None, 0), "speculation.num_tokens"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    arguments: tuple[SpeculationMethod | None, str | None, int | None], option: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        speculation_config(*arguments)
    assert caught.value.field == option
