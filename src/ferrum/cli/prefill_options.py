"""Options for how prompts are cut into steps, beside what time allows. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

PrefillFirstOption = Annotated[
    int,
    typer.Option(
        "--prefill-first-until-active",
        metavar="N",
        help="While fewer requests run, steps compute prompts alone; gaps of tokens may grow. 0 = never.",
    ),
]
PrefillStepChunkOption = Annotated[
    int, typer.Option("--prefill-step-chunk", metavar="N", help="Most tokens of one prompt in a step.")
]
DecodePrefillChunkOption = Annotated[
    int,
    typer.Option(
        "--active-decode-prefill-chunk",
        metavar="N",
        help="Most tokens of all prompts in a step that others get a token from.",
    ),
]


@dataclass(frozen=True, slots=True)
class PrefillSettings:
    """As the fields of ``SchedulerConfig`` of these names, which checks them."""

    prefill_first_until_active: int
    prefill_step_chunk: int
    active_decode_prefill_chunk: int
