"""Reads a request body: bounded in bytes and time, and a JSON object or a clear refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.requests import Request

from ferrum.server.wire_errors import BodyTooLarge, BodyTooSlow, EncodedBody, MalformedBody

# How long the rest of a too large body is read and thrown away: a client that is still writing when its
# connection closes sees a reset instead of the 413, and tries again.
DISCARD_S = 10.0

# A client that sends nothing more for so long has stalled; its body and connection are not kept for it.
IDLE_S = 60.0


async def read_json_object(request: Request, limit_bytes: int) -> dict[str, Any]:
    """The body as an object. Raises BodyTooLarge, BodyTooSlow, EncodedBody, MalformedBody, or
    ClientDisconnect.

    JSON as RFC 8259 has it: NaN, a byte order mark and lone surrogates are refused; orjson bounds nesting
    at 1024.
    """
    body = await _read(request, limit_bytes)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedBody(f"the request body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise MalformedBody(f"the request body must be a JSON object, not {_json_name(value)}")
    return value


async def discard_body(request: Request) -> bool:
    """Reads the body without keeping it. False: it did not end in time. Raises ClientDisconnect."""
    return await _discard(request.stream())


async def _read(request: Request, limit_bytes: int) -> bytes:
    chunks = request.stream()
    if (encoding := _encoding(request)) is not None:
        await _discard(chunks)
        raise EncodedBody(encoding)
    if _declared_length(request) > limit_bytes:
        await _discard(chunks)
        raise BodyTooLarge(limit_bytes)
    body = bytearray()
    while (chunk := await _next_chunk(chunks)) is not None:
        body += chunk
        if len(body) > limit_bytes:
            body.clear()
            await _discard(chunks)
            raise BodyTooLarge(limit_bytes)
    return bytes(body)


async def _next_chunk(chunks: AsyncIterator[bytes]) -> bytes | None:
    """None at the end of the body."""
    try:
        async with asyncio.timeout(IDLE_S):
            return await anext(chunks, None)
    except TimeoutError:
        raise BodyTooSlow(IDLE_S) from None


def _encoding(request: Request) -> str | None:
    """None for a body that is as it is (RFC 9110 8.4)."""
    encoding = ", ".join(request.headers.getlist("content-encoding")).strip(" ,")
    return None if encoding.lower() in ("", "identity") else encoding


def _declared_length(request: Request) -> int:
    text = request.headers.get("content-length", "0")
    return int(text) if text.isdecimal() else 0


async def _discard(chunks: AsyncIterator[bytes]) -> bool:
    try:
        async with asyncio.timeout(DISCARD_S):
            async for _ in chunks:
                pass
    except TimeoutError:
        return False
    return True


def _json_name(value: object) -> str:
    if value is None:
        return "null"
    return {list: "an array", str: "a string", bool: "a boolean"}.get(type(value), "a number")
