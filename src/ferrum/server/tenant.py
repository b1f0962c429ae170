"""On whose account a request runs: its API key's, or the ``user``'s that it names."""

from __future__ import annotations

import hashlib

from starlette.requests import Request

from ferrum.server.wire_schemas import GenerationBody

_NAME_HEX_DIGITS = 16


def tenant_of(request: Request, body: GenerationBody) -> str | None:
    """The name of the tenant, None for somebody unknown."""
    name = key_name(request)
    if name is not None:
        return name
    return f"user:{body.user}" if body.user else None


def key_name(request: Request) -> str | None:
    """The name of a request's API key, which does not tell the key; None without one.

    Keys are not checked here; one that a client makes up is a tenant of its own.
    """
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return f"key:{hashlib.sha256(key.strip().encode()).hexdigest()[:_NAME_HEX_DIGITS]}"
    return None
