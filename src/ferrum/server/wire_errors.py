"""Errors that exist only on the wire; error_responses.py gives them their status."""

from __future__ import annotations

from collections.abc import Iterable

from ferrum.core.errors import FerrumError, InvalidRequest


class MalformedBody(InvalidRequest):
    """The request body is not a JSON object."""


class BodyTooLarge(FerrumError):
    """The request body is longer than ``limit_bytes``."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the request body is larger than {limit_bytes} bytes, the most this server reads")
        self.limit_bytes = limit_bytes


class EncodedBody(FerrumError):
    """The request body is compressed, or encoded otherwise, as ``encoding`` says."""

    def __init__(self, encoding: str) -> None:
        super().__init__(
            f"the request body has the Content-Encoding {encoding!r:.80}, which this server does not read; "
            "send it as plain JSON, without that header"
        )
        self.encoding = encoding


class AdministrationOff(FerrumError):
    """This server was not started with what the request needs; the text says with what."""


class WrongAdminKey(FerrumError):
    """The request does not bring the admin key."""

    def __init__(self) -> None:
        super().__init__("the admin key is missing or wrong; send it as Authorization: Bearer KEY")


class SessionBusy(FerrumError):
    """Another turn of the session is being answered."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"a turn of the session {session_id!r} is being answered; send the next one after it"
        )
        self.session_id = session_id


class UnknownSession(FerrumError):
    """Nothing is remembered of the session."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"there is no session {session_id!r}, or it was forgotten")
        self.session_id = session_id


class UnknownModel(FerrumError):
    """The request names a model that is not served; ``known`` lists what is."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"the model {name!r} is not served here; there is: {', '.join(self.known)}")


class MalformedHttp(FerrumError):
    """The bytes on a connection are no HTTP/1.1 request."""

    def __init__(self) -> None:
        super().__init__("this is no HTTP/1.1 request")


class HeadTooLarge(FerrumError):
    """A request's line and headers are longer than ``limit_bytes``."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the request's line and headers are longer than {limit_bytes} bytes; shorten them")
        self.limit_bytes = limit_bytes


class BodyTooSlow(FerrumError):
    """Nothing more of a request's body came for ``waited_s`` seconds."""

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"nothing more of the request body came for {waited_s:g} s; send it again")
        self.waited_s = waited_s
