"""AdminKey: who may do what holds memory and files for everybody."""

from __future__ import annotations

import hmac

from starlette.requests import Request

from ferrum.core.errors import InvalidConfig
from ferrum.server.wire_errors import WrongAdminKey

_LEAST_CHARACTERS = 16


class AdminKey:
    """A secret that a request brings as ``Authorization: Bearer KEY``; never shown or logged."""

    def __init__(self, key: str) -> None:
        """Raises InvalidConfig for a key that is easily guessed, or that no header can carry."""
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise InvalidConfig("admin key", "must be letters, digits and signs of ASCII, without blanks")
        if len(key) < _LEAST_CHARACTERS:
            raise InvalidConfig("admin key", f"must have at least {_LEAST_CHARACTERS} characters")
        self._key = key.encode()

    def require(self, request: Request) -> None:
        """Raises WrongAdminKey."""
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(key.strip().encode(), self._key):
            raise WrongAdminKey
