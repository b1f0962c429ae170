"""The options that say how tokens are chosen and when an answer ends: a table, and commands that take them.

Names are those of llama.cpp where it has the option. What each does is on the page docs/sampling.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from typing import Annotated, Any, Concatenate, Final

import typer

from ferrum.cli.streams import argument_text
from ferrum.core.errors import InvalidConfig, InvalidRequest
from ferrum.core.sampling_params import SamplingParams

CHOICE: Final = "Choice of tokens"
REPETITION: Final = "Against repetition"
END: Final = "End of an answer"
RARE: Final = "Rarely needed"


@dataclass(frozen=True, slots=True)
class SamplingOption:
    """An option for ``field`` of SamplingParams, of values of ``kind``; a list may be named repeatedly."""

    field: str
    flags: tuple[str, ...]
    kind: type
    help: str
    group: str

    def parameter(self, default: object) -> inspect.Parameter:
        """As the parameter of a command."""
        metavar = "TEXT" if self.kind == list[str] else None
        option = typer.Option(*self.flags, help=self.help, rich_help_panel=self.group, metavar=metavar)
        is_flag_or_number = isinstance(default, bool | int | float)
        kind: Any = self.kind if is_flag_or_number else self.kind | None
        return inspect.Parameter(
            self.field,
            inspect.Parameter.KEYWORD_ONLY,
            default=default if is_flag_or_number else None,
            annotation=Annotated[kind, option],
        )


OPTIONS: Final = tuple(
    SamplingOption(field, tuple(flags.split()), kind, words, group)
    for group, options in {
        CHOICE: (
            ("temperature", "--temperature --temp", float, "0 = always the likeliest token."),
            ("top_p", "--top-p", float, "Likeliest tokens that reach this probability."),
            ("top_k", "--top-k", int, "The k likeliest tokens; 0 = all."),
            ("min_p", "--min-p", float, "Least share of the likeliest token."),
            ("typical_p", "--typical-p --typical", float, "Most typical tokens that reach this probability."),
            ("top_n_sigma", "--top-n-sigma", float, "Logits this near to the highest; 0 = all."),
            ("xtc_probability", "--xtc-probability", float, "How often the likeliest are left out."),
            ("xtc_threshold", "--xtc-threshold", float, "From which share on; one of them stays."),
            ("dynatemp_range", "--dynatemp-range", float, "Temperature -/+ this, by entropy; 0 = fixed."),
            ("dynatemp_exponent", "--dynatemp-exp", float, "Of the share of the largest entropy."),
            ("mirostat", "--mirostat", int, "2 = steer to a surprise, by mirostat 2; 0 = none."),
            ("mirostat_tau", "--mirostat-ent", float, "That surprise, in bits."),
            ("mirostat_eta", "--mirostat-lr", float, "How fast it steers."),
            ("seed", "--seed", int, "The same seed gives the same answer."),
        ),
        REPETITION: (
            (
                "repetition_penalty",
                "--repeat-penalty --repetition-penalty",
                float,
                "Divides the logits of tokens in prompt and answer; 1 = none.",
            ),
            ("presence_penalty", "--presence-penalty", float, "Against tokens the answer has already."),
            ("frequency_penalty", "--frequency-penalty", float, "Against them for each time it has them."),
            ("repeat_last_n", "--repeat-last-n", int, "Tokens the three look back over; -1 = all."),
            ("dry_multiplier", "--dry-multiplier", float, "Against going on repeating; 0 = none."),
            ("dry_base", "--dry-base", float, "What each repeated token multiplies it by."),
            ("dry_allowed_length", "--dry-allowed-length", int, "Tokens that may be repeated."),
            ("dry_penalty_last_n", "--dry-penalty-last-n", int, "Tokens it looks back over; -1 = all."),
            (
                "dry_sequence_breakers",
                "--dry-sequence-breaker",
                list[str],
                "Text no repetition reaches across, instead of the usual four; repeat it. none = nothing.",
            ),
        ),
        END: (
            ("max_tokens", "--max-tokens --predict", int, "Most tokens of an answer."),
            ("min_tokens", "--min-tokens", int, "Least tokens of an answer."),
            ("stop", "--stop", list[str], "Text that ends an answer; repeat it."),
            ("ignore_eos", "--ignore-eos", bool, "The model's end tokens end no answer."),
        ),
        RARE: (
            ("bad_words", "--bad-word", list[str], "Text that may not come; repeat it."),
            (
                "logit_bias",
                "--logit-bias",
                list[str],
                "TOKEN_ID=NUMBER added to that token's logit, from -100 to 100; repeat it.",
            ),
            (
                "logprobs",
                "--logprobs",
                int,
                "Log-probabilities, and of so many likely tokens in each place, with --output-format jsonl.",
            ),
        ),
    }.items()
    for field, flags, kind, words in options
)


def takes_sampling_options(command: Callable[Concatenate[SamplingParams, ...], None]) -> Callable[..., None]:
    """``command``, whose first parameter is the sampling, as one with these options in its place."""
    defaults = {field.name: field.default for field in fields(SamplingParams)}
    _, *others = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [*others, *(option.parameter(defaults[option.field]) for option in OPTIONS)]

    @wraps(command)
    def with_options(**values: Any) -> None:
        named = {option.field: values.pop(option.field) for option in OPTIONS}
        command(read_sampling(named), **values)

    # What typer reads.
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def read_sampling(values: Mapping[str, Any]) -> SamplingParams:
    """What the options say; None stands for what was not said.

    Raises InvalidConfig naming the option for a bias that is none and a number that is out of range.
    """
    said = {field: value for field, value in values.items() if value not in (None, [])}
    for window in ("repeat_last_n", "dry_penalty_last_n"):
        if said.get(window) == -1:
            del said[window]
    for texts in ("stop", "bad_words", "dry_sequence_breakers"):
        if texts in said:
            said[texts] = tuple(map(argument_text, said[texts]))
    if said.get("dry_sequence_breakers") == ("none",):
        said["dry_sequence_breakers"] = ()
    if "logit_bias" in said:
        said["logit_bias"] = dict(map(_read_bias, said["logit_bias"]))
    try:
        return SamplingParams(**said)
    except InvalidRequest as error:
        field, bracket, which = (error.param or "").partition("[")
        option = next((option for option in OPTIONS if option.field == field), None)
        if option is None:
            raise
        raise InvalidConfig(option.flags[0] + bracket + which, error.problem) from None


def _read_bias(text: str) -> tuple[int, float]:
    token_id, _, bias = text.partition("=")
    try:
        return int(token_id), float(bias)
    except ValueError:
        raise InvalidConfig("--logit-bias", f"{text!r} is no TOKEN_ID=NUMBER; write 11=-2.5") from None
