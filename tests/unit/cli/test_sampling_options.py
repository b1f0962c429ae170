from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from ferrum.cli.grouped_help import GroupedCommand
from ferrum.cli.sampling_options import OPTIONS, takes_sampling_options
from ferrum.core.errors import FerrumError, InvalidConfig
from ferrum.core.sampling_params import SamplingParams

# What one answer at a terminal has no use for, and what other options of the command say.
ELSEWHERE = {
    "n",
    "best_of",
    "echo",
    "prompt_logprobs",
    "stop_token_ids",
    "allowed_token_ids",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "completion_boundary",
    "forbidden_first_texts",
    "control_texts",
    "constraint",
}


def read(*arguments: str) -> SamplingParams:
    """What a command of these options gets."""
    got: list[SamplingParams] = []

    @takes_sampling_options
    def command(sampling: SamplingParams, model: Annotated[str, typer.Argument()]) -> None:
        assert model == "m"
        got.append(sampling)

    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    ended = CliRunner().invoke(app, ["m", *arguments])
    if isinstance(ended.exception, FerrumError):
        raise ended.exception
    assert ended.exit_code == 0, ended.output
    return got[0]


def test_nothing_said_is_what_the_library_does() -> None:
    assert read() == SamplingParams()


def test_every_parameter_of_the_library_has_an_option_or_a_reason() -> None:
    assert {option.field for option in OPTIONS} | ELSEWHERE == {
        field.name for field in fields(SamplingParams)
    }


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        ("--temp 0.5", "temperature", 0.5),
        ("--top-p 0.5", "top_p", 0.5),
        ("--top-k 7", "top_k", 7),
        ("--min-p 0.1", "min_p", 0.1),
        ("--typical 0.5", "typical_p", 0.5),
        ("--top-n-sigma 1.5", "top_n_sigma", 1.5),
        ("--xtc-probability 0.5", "xtc_probability", 0.5),
        ("--xtc-threshold 0.2", "xtc_threshold", 0.2),
        ("--dynatemp-range 0.5", "dynatemp_range", 0.5),
        ("--dynatemp-exp 2", "dynatemp_exponent", 2.0),
        ("--mirostat 2", "mirostat", 2),
        ("--mirostat-ent 3", "mirostat_tau", 3.0),
        ("--mirostat-lr 0.2", "mirostat_eta", 0.2),
        ("--seed -5", "seed", -5),
        ("--repeat-penalty 1.2", "repetition_penalty", 1.2),
        ("--presence-penalty -1", "presence_penalty", -1.0),
        ("--frequency-penalty 0.3", "frequency_penalty", 0.3),
        ("--repeat-last-n 64", "repeat_last_n", 64),
        ("--repeat-last-n -1", "repeat_last_n", None),
        ("--repeat-last-n 0", "repeat_last_n", 0),
        ("--dry-multiplier 0.8", "dry_multiplier", 0.8),
        ("--dry-base 2", "dry_base", 2.0),
        ("--dry-allowed-length 3", "dry_allowed_length", 3),
        ("--dry-penalty-last-n 99", "dry_penalty_last_n", 99),
        ("--dry-penalty-last-n -1", "dry_penalty_last_n", None),
        ("--dry-sequence-breaker ; --dry-sequence-breaker .", "dry_sequence_breakers", (";", ".")),
        ("--dry-sequence-breaker none", "dry_sequence_breakers", ()),
        ("--max-tokens 9", "max_tokens", 9),
        ("--min-tokens 3", "min_tokens", 3),
        ("--stop a --stop b", "stop", ("a", "b")),
        ("--ignore-eos", "ignore_eos", True),
        ("--bad-word x --bad-word y", "bad_words", ("x", "y")),
        ("--logit-bias 11=-2.5 --logit-bias 3=100", "logit_bias", {11: -2.5, 3: 100.0}),
        ("--logprobs 0", "logprobs", 0),
    ],
)
def test_an_option_sets_its_parameter_and_no_other(arguments: str, field: str, value: Any) -> None:
    assert read(*arguments.split()) == SamplingParams(**{field: value})


@pytest.mark.parametrize("text", ["", "11", "11=", "=2", "eleven=2", "11=much", "1.5=2"])
def test_a_bias_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"TOKEN_ID=NUMBER; write 11=-2\.5"):
        read("--logit-bias", text)


@pytest.mark.parametrize(
    "arguments", ["--xtc-probability 2", "--mirostat 1", "--logit-bias 3=101", "--logit-bias 3=nan"]
)
def test_values_out_of_range_are_refused_by_name(arguments: str) -> None:
    option, value = arguments.split()
    with pytest.raises(InvalidConfig) as caught:
        read(option, value)
    assert caught.value.field.startswith(option)


def test_help_stands_in_groups_each_option_in_one() -> None:
    app = typer.Typer(rich_markup_mode=None)

    @app.command(cls=GroupedCommand)
    @takes_sampling_options
    def command(sampling: SamplingParams, quiet: Annotated[bool, typer.Option("--quiet")] = False) -> None:
        """Does nothing."""

    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == [
        "Options:",
        "Choice of tokens:",
        "Against repetition:",
        "End of an answer:",
        "Rarely needed:",
    ]
    for option in OPTIONS:
        place = next(number for number, line in enumerate(lines) if line.startswith(f"  {option.flags[0]}"))
        assert next(line for line in reversed(lines[:place]) if line in headings) == f"{option.group}:"
