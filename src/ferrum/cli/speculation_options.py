"""The options that say whether tokens are drafted, and how. Imports nothing heavy."""

from __future__ import annotations

from typing import Annotated

import typer

from ferrum.core.errors import InvalidConfig
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod

SpeculateOption = Annotated[
    SpeculationMethod | None,
    typer.Option(
        "--speculate",
        help="ngram = draft what followed the same words before, in prompt and answer; draft = by the model "
        "that --draft names; off. Answers are the same, only sooner.  [default: off]",
    ),
]
DraftOption = Annotated[
    str | None,
    typer.Option(
        "--draft",
        "--spec-draft",
        metavar="MODEL",
        help="A smaller model of the same vocabulary that drafts tokens for this one.",
    ),
]
DraftTokensOption = Annotated[
    int | None,
    typer.Option(
        "--draft-tokens",
        "--spec-tokens",
        help="Most tokens drafted at a time; fewer where they do not pay.  [default: 4, of words 10]",
    ),
]


def speculation_config(
    method: SpeculationMethod | None, draft_model: str | None, num_tokens: int | None
) -> SpeculationConfig:
    """Raises InvalidConfig for options that contradict each other."""
    drafting = SpeculationMethod.DRAFT
    if draft_model is not None and method not in (None, drafting):
        raise InvalidConfig("--draft", f"does not go with --speculate {method}; leave one of the two out")
    if draft_model is None and method is drafting:
        raise InvalidConfig("--speculate", "draft needs a model that drafts; name it with --draft")
    chosen = drafting if draft_model is not None else method or SpeculationMethod.OFF
    return SpeculationConfig(chosen, draft_model, num_tokens)


def speculation_line(config: SpeculationConfig) -> str:
    """What was chosen, for people."""
    if not config.is_on:
        return "speculation: off"
    source = f"drafts of {config.draft_model}" if config.draft_model is not None else "n-grams"
    return f"speculation: {source}, up to {config.request_tokens} tokens at a time"
