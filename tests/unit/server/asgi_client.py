"""Calls an ASGI application in process, with the disconnect in the test's hand."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.applications import Starlette


@dataclass
class Answer:
    """What the application has sent so far; ``parts`` are the body pieces as they were sent."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)
    is_complete: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def events(self) -> list[str]:
        """The data of each server-sent event; comments are left out."""
        text = self.body.decode()
        return [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]

    @property
    def objects(self) -> list[Any]:
        return [orjson.loads(event) for event in self.events if event != "[DONE]"]


class Call:
    """One running request. ``leave`` is the client closing its connection."""

    def __init__(
        self, app: Starlette, method: str, path: str, body: Sequence[bytes], headers: dict[str, str]
    ) -> None:
        self.answer = Answer()
        self.num_body_parts_read = 0
        self._body = list(body)
        self._left = asyncio.Event()
        self._sent = asyncio.Event()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self.num_body_parts_read < max(1, len(self._body)):
            index = self.num_body_parts_read
            self.num_body_parts_read += 1
            part = self._body[index] if self._body else b""
            return {"type": "http.request", "body": part, "more_body": index + 1 < len(self._body)}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.answer.status = message["status"]
            self.answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.answer.parts.append(message.get("body", b""))
            self.answer.is_complete = not message.get("more_body", False)
        self._sent.set()

    async def sent(self) -> None:
        """Waits until the application has sent something more."""
        self._sent.clear()
        async with asyncio.timeout(5):
            await self._sent.wait()

    def leave(self) -> None:
        self._left.set()

    async def finished(self) -> Answer:
        async with asyncio.timeout(5):
            await self.task
        return self.answer


def start(app: Starlette, path: str, content: Any, headers: dict[str, str] | None = None) -> Call:
    """A POST with ``content`` as JSON, or as it is when it is bytes."""
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    return Call(app, "POST", path, [body], headers or {})


async def post(app: Starlette, path: str, content: Any) -> Answer:
    return await start(app, path, content).finished()


async def get(
    app: Starlette, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> Answer:
    return await Call(app, method, path, [], headers or {}).finished()
