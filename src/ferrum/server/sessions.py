"""Which session a request belongs to, and /v1/sessions/{id}."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ferrum.chat.messages import ContentForm, ContentRules, prepare_messages
from ferrum.core.errors import InvalidRequest
from ferrum.core.request import FinishReason, InferenceResult
from ferrum.server.error_responses import answering_errors, json_response
from ferrum.server.server_context import ServerContext
from ferrum.server.session_cache import Message, SessionCache, SessionKey, SessionTurn
from ferrum.server.tenant import key_name
from ferrum.server.wire_errors import UnknownSession
from ferrum.server.wire_schemas import ChatCompletionBody

HEADER = "X-Ferrum-Session"
METADATA_KEY = "ferrum_session_id"
# How many messages of the session the answer's prompt began with.
PRIOR_HEADER = "X-Ferrum-Session-Messages"

_LONGEST_ID = 128
_ANSWERED = (FinishReason.EOS, FinishReason.STOP, FinishReason.LENGTH)
_ANY_CONTENT = ContentRules(ContentForm.EITHER, has_null=True)


class ChatTurn:
    """A chat request, be it a turn of a session or one that stands alone. It ends once; later calls do
    nothing.
    """

    def __init__(self, messages: Sequence[Message], turn: SessionTurn | None = None) -> None:
        self.messages = messages
        self._turn = turn

    @property
    def headers(self) -> dict[str, str]:
        """What the answer says of the session."""
        return {} if self._turn is None else {PRIOR_HEADER: str(self._turn.num_prior)}

    def end(self, answer: InferenceResult) -> None:
        """The session goes on from the answer, unless it was cut short from outside: then there is none, and
        the client may ask again.
        """
        if self._turn is not None and answer.finish_reason in _ANSWERED:
            self._turn.finish(answer.text, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.abandon()

    def abandon(self) -> None:
        """Nothing came of it."""
        if self._turn is not None:
            self._turn.abandon()


def begin_turn(context: ServerContext, request: Request, body: ChatCompletionBody) -> ChatTurn:
    """The turn that the request is, of its session if it names one.

    Raises SessionBusy, and InvalidRequest for a session that cannot be, or a request that cannot be its turn.
    """
    session_id, where = _session_of(request, body)
    if session_id is None:
        return ChatTurn(body.messages)
    key = SessionKey(key_name(request), _checked(session_id, where))
    sessions = _required(context, where)
    if body.n not in (None, 1):
        raise InvalidRequest("must be 1 in a session: it goes on from one answer", "n")
    if body.continue_final_message:
        raise InvalidRequest("is not possible in a session", "continue_final_message")
    # Those that the client did not send were checked before, and must not count in what a refusal says.
    prepare_messages(body.messages, _ANY_CONTENT)
    turn = sessions.begin(key, body.messages)
    return ChatTurn(turn.messages, turn)


def sessions_routes(context: ServerContext) -> list[Route]:
    """The routes over ``context``."""

    def key_of(request: Request) -> SessionKey:
        return SessionKey(key_name(request), _checked(request.path_params["session_id"], "session_id"))

    @answering_errors
    async def show_session(request: Request) -> Response:
        key = key_of(request)
        session = _required(context, "session_id").get(key)
        if session is None:
            raise UnknownSession(key.session_id)
        counts = {"num_messages": len(session.messages), "num_tokens": session.num_tokens}
        return json_response({"object": "session", "id": key.session_id, **counts})

    @answering_errors
    async def delete_session(request: Request) -> Response:
        key = key_of(request)
        if not _required(context, "session_id").forget(key):
            raise UnknownSession(key.session_id)
        return json_response({"object": "session", "id": key.session_id, "deleted": True})

    path = "/v1/sessions/{session_id}"
    return [Route(path, show_session, methods=["GET"]), Route(path, delete_session, methods=["DELETE"])]


def _session_of(request: Request, body: ChatCompletionBody) -> tuple[object, str]:
    """The id, None if there is none, and where it stands; the header wins."""
    if HEADER in request.headers:
        return request.headers[HEADER], HEADER
    metadata = body.metadata if isinstance(body.metadata, dict) else {}
    return metadata.get(METADATA_KEY), f"metadata.{METADATA_KEY}"


def _checked(session_id: object, where: str) -> str:
    is_text = isinstance(session_id, str) and session_id.isascii() and session_id.isprintable()
    if not isinstance(session_id, str) or not is_text or not 0 < len(session_id) <= _LONGEST_ID:
        raise InvalidRequest(f"must be 1 to {_LONGEST_ID} printable ASCII characters", where)
    return session_id


def _required(context: ServerContext, where: str) -> SessionCache:
    if context.sessions is None:
        raise InvalidRequest(
            "sessions are off on this server; start it with --session-cache memory, or send all messages",
            where,
        )
    return context.sessions
