"""CompletionBoundary: how far an answer must have come before the model may end it. Knows no tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ferrum.core.errors import InvalidRequest

PARAM = "completion_boundary"
MAX_BOUNDARY_TEXT = 256


@dataclass(frozen=True, slots=True)
class Immediate:
    """The model may end its answer whenever it likes."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """Another form of what follows the delimiter: parts between ``open_text`` and ``close_text``.

    Such as tool calls. At least one must be closed, and there may be ``max_envelopes`` of them.
    """

    open_text: str
    close_text: str
    max_envelopes: int = 64

    def __post_init__(self) -> None:
        _require_text("envelope.open_text", self.open_text)
        _require_text("envelope.close_text", self.close_text)
        limit = self.max_envelopes
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidRequest(
                f"must be an integer of at least 1, not {limit!r}", f"{PARAM}.envelope.max_envelopes"
            )


@dataclass(frozen=True, slots=True)
class AfterDelimiterAndPayload:
    """The model may end only after ``delimiter`` and something that is no white space, or an envelope.

    For models that reason first: after "</think>" and a first word of the answer. Stops of the caller end the
    answer all the same, and so does its length.
    """

    delimiter: str
    envelope: Envelope | None = None

    def __post_init__(self) -> None:
        _require_text("delimiter", self.delimiter)
        if self.envelope is not None and not isinstance(self.envelope, Envelope):
            raise InvalidRequest(
                f"must be an Envelope, not {type(self.envelope).__name__}", f"{PARAM}.envelope"
            )

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text that the answer must or may be divided by."""
        if self.envelope is None:
            return (self.delimiter,)
        return (self.delimiter, self.envelope.open_text, self.envelope.close_text)


CompletionBoundary = Immediate | AfterDelimiterAndPayload
IMMEDIATE = Immediate()


def boundary_from_mapping(value: object) -> CompletionBoundary:
    """From plain values, as JSON has them: ``{"delimiter": ..., "envelope": {...}}``; null is Immediate.

    Raises InvalidRequest that names the wrong key.
    """
    if value is None:
        return IMMEDIATE
    content = _object(PARAM, value, AfterDelimiterAndPayload)
    if content.get("envelope") is not None:
        content["envelope"] = Envelope(**_object(f"{PARAM}.envelope", content["envelope"], Envelope))
    return AfterDelimiterAndPayload(**content)


def boundary_to_mapping(boundary: CompletionBoundary) -> dict[str, Any] | None:
    """The opposite of ``boundary_from_mapping``."""
    if isinstance(boundary, Immediate):
        return None
    envelope = boundary.envelope
    return {
        "delimiter": boundary.delimiter,
        "envelope": None
        if envelope is None
        else {each.name: getattr(envelope, each.name) for each in fields(envelope)},
    }


def _object(param: str, value: object, kind: type[AfterDelimiterAndPayload | Envelope]) -> dict[str, Any]:
    known = [each.name for each in fields(kind)]
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"must be an object with {', '.join(known)}, not {value!r}", param)
    for key in value:
        if key not in known:
            raise InvalidRequest(f"is unknown; there are: {', '.join(known)}", f"{param}.{key}")
    for key in ("delimiter", "open_text", "close_text"):
        if key in known and key not in value:
            raise InvalidRequest("is required", f"{param}.{key}")
    return dict(value)


def _require_text(name: str, value: object) -> None:
    param = f"{PARAM}.{name}"
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"must be a text that is not empty, not {value!r}", param)
    if len(value) > MAX_BOUNDARY_TEXT:
        raise InvalidRequest(f"has {len(value)} characters, and the limit is {MAX_BOUNDARY_TEXT}", param)
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidRequest("is not valid Unicode: it has half of a surrogate pair", param)
