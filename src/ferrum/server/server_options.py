"""ServerOptions: how the HTTP side behaves. Knows nothing of models."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.core.errors import InvalidConfig

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Frozen; validated when built.

    max_body_bytes   larger request bodies are answered with 413
    ping_interval_s  a comment line goes out this often while a stream waits for its first token
    drain_s          longest wait for running requests after the first SIGTERM or SIGINT
    cors_origins     origins a browser page may call from; "*" = any; empty = no CORS headers
    explains_cache   a request may ask why no more of it was found in the prefix cache; the answer shows a
                     token of somebody's prompt, so it is for debugging only
    """

    max_body_bytes: int = 32 * MEBIBYTE
    ping_interval_s: float = 5.0
    drain_s: float = 30.0
    cors_origins: tuple[str, ...] = ()
    explains_cache: bool = False

    def __post_init__(self) -> None:
        if self.max_body_bytes < 1:
            raise InvalidConfig("max_body_bytes", f"must be at least 1, not {self.max_body_bytes}")
        if not self.ping_interval_s > 0:
            raise InvalidConfig("ping_interval_s", f"must be above 0, not {self.ping_interval_s:g}")
        if not self.drain_s >= 0:
            raise InvalidConfig("drain_s", f"must not be negative, not {self.drain_s:g}")
