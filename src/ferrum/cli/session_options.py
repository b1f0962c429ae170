"""Options for conversations that the server remembers. Imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class SessionStore(StrEnum):
    """Where sessions are remembered."""

    OFF = "off"
    MEMORY = "memory"


SessionCacheOption = Annotated[
    SessionStore,
    typer.Option(
        "--session-cache",
        help="memory = remember conversations: with X-Ferrum-Session a request sends its new messages only.",
    ),
]
MaxSessionsOption = Annotated[
    int, typer.Option("--max-sessions", help="Most of them; the least recently used are forgotten.")
]
SessionTokensOption = Annotated[
    int,
    typer.Option(
        "--session-tokens", help="Most tokens of each; the newest turns, in half a context at most."
    ),
]
