"""HttpConnection: one client's connection, bounded in bytes and time before its request has begun.

uvicorn's own protocol bounds neither, refuses in plain text, and loses the body of a request that offers to
change the protocol. Knows nothing of routes.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, cast

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ferrum.core.errors import FerrumError
from ferrum.server.disconnect import FIRST_DOUBT_S, HALF_CLOSED
from ferrum.server.error_responses import error_body, error_kind
from ferrum.server.wire_errors import HeadTooLarge, MalformedHttp

# Bytes that may come without any progress: of a request's head, or of what follows its body.
MAX_HEAD_BYTES = 64 * 1024

# A head is one packet, or a few. Longer than clients keep a connection they opened in advance.
HEAD_S = 60.0

# Any number of these may come before an answer (RFC 9110 15.2), and clients skip them.
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_OF_UPGRADES = frozenset((b"upgrade", b"http2-settings"))


class HttpConnection(HttpToolsProtocol):
    """Called by the event loop (bytes) and by the parser (``on_...``), on one thread.

    An offer to change the protocol ("Upgrade: h2c" of Java's client and of curl --http2, or a WebSocket) is
    passed over, as RFC 9110 7.8 allows: the request is answered in HTTP/1.1, body and all.

    A client that has closed its half of the connection behind a whole request is answered; one that has
    closed all of it is found out by writing to it. HTTP/1.0 knows nothing that could be written before an
    answer, so its clients count as gone.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._bytes_without_progress = 0
        self._head_deadline: asyncio.TimerHandle | None = None
        self._offers_upgrade = False
        self._half_closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        super().connection_made(cast(asyncio.Transport, transport))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._bytes_without_progress += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(MalformedHttp())
        else:
            if self._bytes_without_progress > MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge(MAX_HEAD_BYTES))

    # asyncio asks for a bool here (Protocol.eof_received); uvicorn's class narrows that to None.
    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection is kept."""
        if not self._is_owed_an_answer():
            return False
        # No other request can follow.
        self.cycle.keep_alive = False
        self._half_closed.set()
        self._probe(FIRST_DOUBT_S)
        return True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._half_closed = asyncio.Event()
        self.scope["state"][HALF_CLOSED] = self._half_closed
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._bytes_without_progress = 0
        self._head_came()
        self._offers_upgrade = self.parser.should_upgrade()
        if not self._offers_upgrade:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes_without_progress = 0
        if not self._offers_upgrade:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._bytes_without_progress = 0
        if not self._offers_upgrade:
            super().on_message_complete()

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                return self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                if self.parser.get_method() == b"CONNECT":
                    raise httptools.HttpParserError from None
                # The parser stopped behind the head; another one goes on, as if nothing had been offered.
                data = self._head_without_offer() + data[offer.args[0] :]
                self.parser = httptools.HttpRequestParser(self)

    def _head_without_offer(self) -> bytes:
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/1.1"]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() not in _OF_UPGRADES)
            if value and name not in _OF_UPGRADES:
                lines.append(name + b": " + value)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _expect_head(self) -> None:
        if self._head_deadline is None:
            self._head_deadline = self.loop.call_later(HEAD_S, self._give_up)

    def _head_came(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _give_up(self) -> None:
        self._head_deadline = None
        self.transport.close()

    def _is_owed_an_answer(self) -> bool:
        """Whether the newest request is whole, and the only one that waits for its answer."""
        cycle = self.cycle
        if cycle is None or self.pipeline or self.scope["http_version"] != "1.1":
            return False
        return not cycle.more_body and not cycle.response_complete

    def _probe(self, pause_s: float) -> None:
        """Writes to a client that may be gone, until its answer begins; a reset loses the connection."""
        if not (self.cycle.response_started or self.transport.is_closing()):
            self.transport.write(_CONTINUE)
            self.loop.call_later(pause_s, self._probe, 2 * pause_s)

    def _refuse(self, error: FerrumError) -> None:
        """Ends the connection; says why, unless an answer is on its way that this would spoil."""
        if not self._is_answering():
            status, body = HTTPStatus(error_kind(error).status), orjson.dumps(error_body(error))
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()

    def _is_answering(self) -> bool:
        cycle = self.cycle
        return bool(self.pipeline) or (
            cycle is not None and cycle.response_started and not cycle.response_complete
        )
