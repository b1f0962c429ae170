"""SessionCache: conversations of which clients send the new messages only. Knows no HTTP and no tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import orjson

from ferrum.core.errors import InvalidConfig
from ferrum.server.wire_errors import SessionBusy

Message = Mapping[str, Any]

# A history that is too long is cut to this part of what it may have: each cut changes how the prompt begins,
# so that all of it is computed again, which must not happen in every turn.
_KEPT_SHARE = 0.75
# No text is longer; fields that no template shows could be.
_MOST_BYTES_PER_TOKEN = 64
_INSTRUCTING = ("system", "developer")


class SessionKey(NamedTuple):
    """Tenants have names of their own for their sessions. ``tenant`` None: somebody unknown."""

    tenant: str | None
    session_id: str


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """``max_tokens``: of one session. Raises InvalidConfig for a limit below 1."""

    max_sessions: int = 128
    max_tokens: int = 4096

    def __post_init__(self) -> None:
        for name, limit in (("--max-sessions", self.max_sessions), ("--session-tokens", self.max_tokens)):
            if limit < 1:
                raise InvalidConfig(name, f"must be at least 1, not {limit}")

    def within(self, context_length: int) -> SessionLimits:
        """A session must leave room for a question and its answer."""
        return replace(self, max_tokens=min(self.max_tokens, max(1, context_length // 2)))


@dataclass(frozen=True, slots=True)
class Session:
    """The messages so far, and about how many tokens they are."""

    messages: tuple[Message, ...] = ()
    num_tokens: int = 0


class SessionTurn:
    """One question of a session, and its answer when ``finish`` brings it. ``messages``: all of them, of
    which the session had ``num_prior``.

    Whoever drops it, or calls ``abandon``, leaves the session as it was.
    """

    def __init__(self, cache: SessionCache, key: SessionKey, prior: Session, new: Sequence[Message]) -> None:
        self._cache = cache
        self._key = key
        kept, num_instructions = prior.messages, _num_instructions(new)
        if num_instructions:
            # Instructions that come again replace the old ones, in their place.
            kept = kept[_num_instructions(kept) :]
        self.num_prior = len(kept)
        self.messages: list[Message] = [*new[:num_instructions], *kept, *new[num_instructions:]]

    def finish(self, answer: str, num_tokens: int) -> None:
        """The assistant answered with ``answer``: the session goes on from there. Called once.

        ``num_tokens``: how many the whole conversation has, the answer included.
        """
        messages = [*self.messages, {"role": "assistant", "content": answer}]
        self._cache.store(self._key, messages, num_tokens)
        self.abandon()

    def abandon(self) -> None:
        """The next turn may begin. Called again it does nothing."""
        self._cache.leave(self._key, self)


class SessionCache:
    """Of the sessions the least recently used go first; of each the newest turns stay, and what its system
    message says as long as that fits. One thread: the event loop's.
    """

    def __init__(self, limits: SessionLimits = SessionLimits()) -> None:
        self._limits = limits
        self._sessions: OrderedDict[SessionKey, Session] = OrderedDict()  # least recently used first
        # Weakly: a turn that nobody can end any more must not keep its session for ever.
        self._turns: WeakValueDictionary[SessionKey, SessionTurn] = WeakValueDictionary()
        self.num_hits = 0
        self.num_misses = 0
        self.num_evictions = 0
        self.num_tokens = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> Session | None:
        return self._sessions.get(key)

    def begin(self, key: SessionKey, messages: Sequence[Message]) -> SessionTurn:
        """The next turn of a session, which may be a new one. Raises SessionBusy while another one runs."""
        if key in self._turns:
            raise SessionBusy(key.session_id)
        session = self._sessions.get(key)
        if session is None:
            self.num_misses += 1
        else:
            self.num_hits += 1
        turn = SessionTurn(self, key, session or Session(), messages)
        self._turns[key] = turn
        return turn

    def forget(self, key: SessionKey) -> bool:
        """False: there was no such session. A turn that runs begins it anew."""
        session = self._sessions.pop(key, None)
        self.num_tokens -= session.num_tokens if session else 0
        return session is not None

    def store(self, key: SessionKey, messages: Sequence[Message], num_tokens: int) -> None:
        """Remembers ``messages``, which are ``num_tokens`` tokens, as far as they fit."""
        self.forget(key)
        session = _trimmed(messages, num_tokens, self._limits.max_tokens)
        if not session.messages:
            return
        self._sessions[key] = session
        self.num_tokens += session.num_tokens
        while len(self._sessions) > self._limits.max_sessions:
            self.forget(next(iter(self._sessions)))
            self.num_evictions += 1

    def leave(self, key: SessionKey, turn: SessionTurn) -> None:
        if self._turns.get(key) is turn:
            del self._turns[key]


def _trimmed(messages: Sequence[Message], num_tokens: int, max_tokens: int) -> Session:
    """Whole turns go, the oldest first; one that is too long alone goes, too, and then the instructions."""
    lengths = [len(orjson.dumps(message)) for message in messages]
    num_tokens = max(num_tokens, sum(lengths) // _MOST_BYTES_PER_TOKEN)
    if num_tokens <= max_tokens:
        return Session(tuple(messages), num_tokens)
    # Each message has its share of the tokens by its length.
    sizes = [ceil(length * num_tokens / sum(lengths)) for length in lengths]
    first = _num_instructions(messages)
    starts = [index for index in range(first, len(messages)) if messages[index].get("role") == "user"]
    if sum(sizes[:first]) > max_tokens:
        first = 0
    for limit in (int(max_tokens * _KEPT_SHARE), max_tokens):
        for start in starts:
            num_tokens = sum(sizes[:first]) + sum(sizes[start:])
            if num_tokens <= limit:
                return Session((*messages[:first], *messages[start:]), num_tokens)
    return Session(tuple(messages[:first]), sum(sizes[:first]))


def _num_instructions(messages: Sequence[Message]) -> int:
    for index, message in enumerate(messages):
        if message.get("role") not in _INSTRUCTING:
            return index
    return len(messages)
