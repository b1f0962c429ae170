"""Errors to HTTP: the status, OpenAI's error object, and the guard around every endpoint.

The one place that knows a status for an error. A bug of ours is logged with its traceback, and the answer
has none.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ferrum.core.errors import (
    AnswerCutByStop,
    BrokenConstraint,
    ChatTemplateError,
    ConstraintTooComplex,
    ContextLengthExceeded,
    DeadlineExceeded,
    DuplicateRequest,
    EngineClosed,
    EngineStalled,
    FerrumError,
    ForbiddenToken,
    InvalidConstraint,
    InvalidRequest,
    MalformedAnswer,
    PrefixNotSaved,
    PrefixPinnedAlready,
    QueueFull,
    RequestCancelled,
    ResourceExhausted,
    UnknownPrefix,
    UnusableSavedPrefix,
)
from ferrum.server.wire_errors import (
    AdministrationOff,
    BodyTooLarge,
    BodyTooSlow,
    EncodedBody,
    HeadTooLarge,
    MalformedHttp,
    SessionBusy,
    UnknownModel,
    UnknownSession,
    WrongAdminKey,
)

log = logging.getLogger("ferrum.server")

# Nobody receives it: the client is gone. nginx's number for that, for access logs.
CLIENT_CLOSED_REQUEST = 499


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """How one type of error looks on the wire."""

    status: int
    type: str
    code: str | None = None


INVALID = "invalid_request_error"
UNAVAILABLE = "service_unavailable_error"

# The first entry whose type matches decides, so subclasses stand before their bases.
KINDS: tuple[tuple[type[FerrumError], ErrorKind], ...] = (
    (BodyTooLarge, ErrorKind(413, INVALID, "request_too_large")),
    (BodyTooSlow, ErrorKind(408, INVALID, "request_too_slow")),
    (EncodedBody, ErrorKind(415, INVALID, "unsupported_encoding")),
    (HeadTooLarge, ErrorKind(431, INVALID, "request_too_large")),
    (MalformedHttp, ErrorKind(400, INVALID)),
    (UnknownModel, ErrorKind(404, INVALID, "model_not_found")),
    (UnknownSession, ErrorKind(404, INVALID, "session_not_found")),
    (SessionBusy, ErrorKind(409, INVALID, "session_busy")),
    (WrongAdminKey, ErrorKind(401, INVALID, "invalid_admin_key")),
    (AdministrationOff, ErrorKind(403, INVALID, "administration_off")),
    (UnknownPrefix, ErrorKind(404, INVALID, "prefix_not_found")),
    (PrefixPinnedAlready, ErrorKind(409, INVALID, "prefix_pinned_already")),
    (PrefixNotSaved, ErrorKind(507, UNAVAILABLE, "prefix_not_saved")),
    (UnusableSavedPrefix, ErrorKind(409, INVALID, "unusable_saved_prefix")),
    (ContextLengthExceeded, ErrorKind(400, INVALID, "context_length_exceeded")),
    (ChatTemplateError, ErrorKind(400, INVALID, "chat_template_error")),
    (DuplicateRequest, ErrorKind(409, INVALID, "duplicate_request")),
    (InvalidConstraint, ErrorKind(400, INVALID, "invalid_constraint")),
    (ConstraintTooComplex, ErrorKind(400, INVALID, "constraint_too_complex")),
    (InvalidRequest, ErrorKind(400, INVALID)),
    (AnswerCutByStop, ErrorKind(400, INVALID, "constraint_not_fulfilled")),
    (BrokenConstraint, ErrorKind(500, "internal_server_error", "constraint_not_fulfilled")),
    (QueueFull, ErrorKind(429, "rate_limit_error", "queue_full")),
    (DeadlineExceeded, ErrorKind(504, "timeout_error", "deadline_exceeded")),
    (ResourceExhausted, ErrorKind(503, UNAVAILABLE, "resource_exhausted")),
    (EngineClosed, ErrorKind(503, UNAVAILABLE, "shutting_down")),
    (EngineStalled, ErrorKind(503, UNAVAILABLE, "engine_stalled")),
    (RequestCancelled, ErrorKind(503, UNAVAILABLE, "cancelled")),
    (ForbiddenToken, ErrorKind(500, "model_error", "forbidden_token")),
    (MalformedAnswer, ErrorKind(500, "model_error", "malformed_answer")),
)
INTERNAL = ErrorKind(500, "internal_server_error", "internal_error")
INTERNAL_MESSAGE = "internal error; the server's log has the details"


def error_kind(error: BaseException) -> ErrorKind:
    """The wire form of ``error``; anything not in the table is our own bug."""
    return next((kind for error_type, kind in KINDS if isinstance(error, error_type)), INTERNAL)


def error_body(error: BaseException, wire_names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """OpenAI's error object. ``wire_names``: core parameters under the names this route's clients use."""
    kind = error_kind(error)
    message, param = (INTERNAL_MESSAGE, None) if kind is INTERNAL else (str(error), _param(error))
    if param is not None and wire_names and param in wire_names:
        renamed = wire_names[param]
        message = message.replace(f"{param}: ", f"{renamed}: ", 1) if message.startswith(param) else message
        param = renamed
    return {"error": {"message": message, "type": kind.type, "param": param, "code": kind.code}}


def _param(error: BaseException) -> str | None:
    if isinstance(error, UnknownModel):
        return "model"
    return error.param if isinstance(error, InvalidRequest) else None


def error_response(error: BaseException, wire_names: Mapping[str, str] | None = None) -> Response:
    """The whole answer to a request that failed before anything was sent."""
    headers = {}
    if isinstance(error, QueueFull):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if isinstance(error, DeadlineExceeded):
        # OpenAI's clients would send it again at once, to a server that is behind already.
        headers["X-Should-Retry"] = "false"
    if isinstance(error, WrongAdminKey):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, EncodedBody):
        # RFC 9110 15.5.16: what would have been read.
        headers["Accept-Encoding"] = "identity"
    if isinstance(error, EngineClosed | EngineStalled | BodyTooLarge | BodyTooSlow | EncodedBody):
        headers["Connection"] = "close"
    status = error_kind(error).status
    return json_response(error_body(error, wire_names), status, headers)


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``content`` as a JSON response."""
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def record_failure(error: BaseException) -> None:
    """Logs what is our own fault; refusals of bad requests are the caller's news, not the log's."""
    if error_kind(error) is INTERNAL:
        log.error("request failed", exc_info=error)


Endpoint = Callable[[Request], Awaitable[Response]]


def answering_errors(endpoint: Endpoint) -> Endpoint:
    """The request boundary: whatever ``endpoint`` raises becomes one error response."""

    @wraps(endpoint)
    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        except Exception as error:
            record_failure(error)
            return error_response(error)

    return guarded


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own refusals (no such route, wrong method) in OpenAI's form, with what there is instead."""
    assert isinstance(error, HTTPException)
    asked = f"{request.method} {request.url.path}"
    if error.status_code == 404:
        message = f"there is no {asked}; there are: {', '.join(_paths(request))}"
    elif error.status_code == 405:
        message = f"there is no {asked}; send it as {(error.headers or {}).get('Allow', 'another method')}"
    else:
        message = f"{asked}: {error.detail}"
    body = {"error": {"message": message, "type": INVALID, "param": None, "code": None}}
    return json_response(body, error.status_code, error.headers)


def _paths(request: Request) -> list[str]:
    """Of every route that anybody may use."""
    paths = (route.path for route in request.app.routes if isinstance(route, Route))
    return sorted({path for path in paths if not path.startswith("/admin/")})
