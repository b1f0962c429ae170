"""/admin/pins and /admin/saved-pins: prompts that stay computed, for whoever has the admin key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ferrum.cache.saved_prefix_folder import SavedPrefixFile, require_prefix_name
from ferrum.core.errors import InvalidConfig, InvalidRequest, QueueFull
from ferrum.core.request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from ferrum.engine.saved_pins import SavedPins
from ferrum.scheduling.pinned_prefixes import PinnedPrefix
from ferrum.server.administration import Administration
from ferrum.server.completion_prompts import completion_prompts
from ferrum.server.disconnect import run_while_connected
from ferrum.server.error_responses import answering_errors, json_response
from ferrum.server.request_body import read_json_object
from ferrum.server.server_context import ServerContext
from ferrum.server.wire_errors import AdministrationOff
from ferrum.server.wire_schemas import validated

_Answer = TypeVar("_Answer")
_Endpoint = Callable[[Request, Administration], Awaitable[Response]]

# Changes are made one after the other; so many may wait for the one that is being made.
_MOST_WAITING = 8
_RETRY_AFTER_S = 5.0


class PinBody(BaseModel):
    """POST /admin/pins: ``name``, and ``prompt`` (text or token ids) or ``messages``."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str
    prompt: Any = None
    messages: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    cache_salt: str | None = None

    def to_prompt(self) -> Prompt:
        """Raises InvalidRequest unless there is exactly one."""
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequest("give exactly one of prompt and messages", "prompt")
        if self.messages is not None:
            return ChatPrompt(self.messages, template_kwargs=self.chat_template_kwargs or {})
        if self.chat_template_kwargs is not None:
            raise InvalidRequest("is for messages", "chat_template_kwargs")
        prompts: list[TextPrompt | TokenPrompt] = completion_prompts(self.prompt)
        if len(prompts) != 1:
            raise InvalidRequest("must be one text or one list of token ids", "prompt")
        return prompts[0]


class RestoreBody(BaseModel):
    """POST /admin/pins/{name}/restore; what was pinned with a salt needs one."""

    model_config = ConfigDict(strict=True, extra="forbid")

    cache_salt: str | None = None


class _Changes:
    """Makes changes beside the event loop, one at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._num_waiting = 0

    async def make(self, change: Callable[..., Awaitable[_Answer]], *arguments: Any) -> _Answer:
        """Raises QueueFull, and what ``change`` does."""
        if self._num_waiting > _MOST_WAITING:
            raise QueueFull(self._num_waiting, _MOST_WAITING, _RETRY_AFTER_S, unit="changes of pins")
        self._num_waiting += 1
        try:
            async with self._turn:
                return await change(*arguments)
        finally:
            self._num_waiting -= 1

    async def make_in_thread(self, change: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """``make`` for what waits for locks and files. It goes on when its caller leaves."""
        return await self.make(asyncio.to_thread, change, *arguments)


def pins_routes(context: ServerContext) -> list[Route]:
    """The routes over ``context``. All of them answer 403 where there is no administration."""
    changes = _Changes()

    def administered(endpoint: _Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """Behind the key, before anything is read."""

        @answering_errors
        @wraps(endpoint)
        async def guarded(request: Request) -> Response:
            administration = context.administration
            if administration is None:
                raise AdministrationOff(
                    "pins over HTTP are off on this server; start it with --admin-key-file FILE, "
                    "or with the key in FERRUM_ADMIN_KEY"
                )
            administration.key.require(request)
            context.lifecycle.require_open()
            try:
                return await endpoint(request, administration)
            except InvalidConfig as error:
                raise AdministrationOff(str(error)) from None

        return guarded

    async def list_pins(request: Request, administration: Administration) -> Response:
        pins = await asyncio.to_thread(lambda: administration.pins.pins)
        return json_response({"object": "list", "data": [_pin_object(administration, pin) for pin in pins]})

    async def show_pin(request: Request, administration: Administration) -> Response:
        pin = await asyncio.to_thread(administration.pins.get, request.path_params["name"])
        return json_response(_pin_object(administration, pin))

    async def create_pin(request: Request, administration: Administration) -> Response:
        body = validated(PinBody, await read_json_object(request, context.options.max_body_bytes))
        require_prefix_name(body.name)
        prompt = body.to_prompt()
        pinning = changes.make(administration.pins.pin_beside, body.name, prompt, body.cache_salt)
        pin = await run_while_connected(request.receive, pinning)
        return json_response(_pin_object(administration, pin), 201)

    async def delete_pin(request: Request, administration: Administration) -> Response:
        name = request.path_params["name"]
        await changes.make_in_thread(administration.pins.unpin, name)
        return json_response({"object": "pinned_prefix", "name": name, "deleted": True})

    async def save_pin(request: Request, administration: Administration) -> Response:
        file = await changes.make_in_thread(_saved(administration).save, request.path_params["name"])
        return json_response(_file_object(file), 201)

    async def restore_pin(request: Request, administration: Administration) -> Response:
        saved, name = _saved(administration), request.path_params["name"]
        body = validated(RestoreBody, await _optional_object(request, context.options.max_body_bytes))
        pin = await changes.make_in_thread(saved.restore, name, body.cache_salt)
        return json_response(_pin_object(administration, pin), 201)

    async def list_saved(request: Request, administration: Administration) -> Response:
        files = await asyncio.to_thread(_saved(administration).files)
        return json_response({"object": "list", "data": [_file_object(file) for file in files]})

    async def delete_saved(request: Request, administration: Administration) -> Response:
        name = request.path_params["name"]
        await changes.make_in_thread(_saved(administration).remove, name)
        return json_response({"object": "saved_prefix", "name": name, "deleted": True})

    table: tuple[tuple[str, str, _Endpoint], ...] = (
        ("GET", "/admin/pins", list_pins),
        ("POST", "/admin/pins", create_pin),
        ("GET", "/admin/pins/{name}", show_pin),
        ("DELETE", "/admin/pins/{name}", delete_pin),
        ("POST", "/admin/pins/{name}/save", save_pin),
        ("POST", "/admin/pins/{name}/restore", restore_pin),
        ("GET", "/admin/saved-pins", list_saved),
        ("DELETE", "/admin/saved-pins/{name}", delete_saved),
    )
    return [Route(path, administered(endpoint), methods=[method]) for method, path, endpoint in table]


def _saved(administration: Administration) -> SavedPins:
    if administration.saved is None:
        raise AdministrationOff("no folder to save into; start the server with --pin-dir DIR")
    return administration.saved


def _pin_object(administration: Administration, pin: PinnedPrefix) -> dict[str, object]:
    return {
        "object": "pinned_prefix",
        "name": pin.name,
        "num_tokens": len(pin.token_ids),
        "num_bytes": administration.pins.num_bytes(pin),
        "is_salted": pin.scope.salt is not None,
    }


def _file_object(file: SavedPrefixFile) -> dict[str, object]:
    return {
        "object": "saved_prefix",
        "name": file.name,
        "num_bytes": file.num_bytes,
        "used_at": int(file.used_at),
    }


async def _optional_object(request: Request, limit_bytes: int) -> dict[str, Any]:
    is_chunked = "transfer-encoding" in request.headers
    if not is_chunked and request.headers.get("content-length", "0") == "0":
        return {}
    return await read_json_object(request, limit_bytes)
