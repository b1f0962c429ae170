"""What is remembered of conversations, and what is forgotten when there is too much of it."""

from __future__ import annotations

import gc

import pytest

from ferrum.core.errors import InvalidConfig
from ferrum.server.session_cache import Message, SessionCache, SessionKey, SessionLimits
from ferrum.server.wire_errors import SessionBusy

KEY = SessionKey(None, "a")


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _talk(
    cache: SessionCache, *messages: Message, num_tokens: int = 1, key: SessionKey = KEY
) -> list[Message]:
    """The messages of the turn; its answer is ``ok``."""
    turn = cache.begin(key, messages)
    turn.finish("ok", num_tokens)
    return turn.messages


def test_a_turn_begins_with_what_was_said_before() -> None:
    cache = SessionCache()
    assert _talk(cache, system("s"), user("1")) == [system("s"), user("1")]
    assert _talk(cache, user("2")) == [system("s"), user("1"), assistant("ok"), user("2")]
    assert cache.begin(KEY, [user("3")]).num_prior == 5
    assert (cache.num_misses, cache.num_hits) == (1, 2)


def test_instructions_that_come_again_replace_the_old_ones() -> None:
    cache = SessionCache()
    _talk(cache, system("old"), user("1"))
    assert _talk(cache, system("new"), user("2")) == [system("new"), user("1"), assistant("ok"), user("2")]


def test_what_was_not_answered_is_not_remembered() -> None:
    cache = SessionCache()
    _talk(cache, user("1"))
    cache.begin(KEY, [user("2")]).abandon()
    assert _talk(cache, user("3")) == [user("1"), assistant("ok"), user("3")]


def test_sessions_of_others_are_others() -> None:
    cache = SessionCache()
    _talk(cache, user("mine"))
    for key in (SessionKey("key:1", "a"), SessionKey(None, "b")):
        assert cache.begin(key, [user("1")]).num_prior == 0


def test_two_turns_at_once_are_refused_and_a_lost_one_holds_nothing_up() -> None:
    cache = SessionCache()
    turn = cache.begin(KEY, [user("1")])
    with pytest.raises(SessionBusy, match="'a' is being answered"):
        cache.begin(KEY, [user("2")])
    del turn
    gc.collect()
    turn = cache.begin(KEY, [user("3")])
    turn.abandon()
    other = cache.begin(KEY, [user("4")])
    turn.abandon()
    with pytest.raises(SessionBusy):
        cache.begin(KEY, [user("5")])
    other.abandon()


def test_the_least_recently_used_session_is_forgotten() -> None:
    cache = SessionCache(SessionLimits(max_sessions=2))
    keys = [SessionKey(None, name) for name in "abc"]
    for key in (keys[0], keys[1], keys[0], keys[2]):
        _talk(cache, user("x"), key=key)
    assert [cache.get(key) is not None for key in keys] == [True, False, True]
    assert (len(cache), cache.num_evictions) == (2, 1)


def test_the_oldest_turns_go_and_never_half_of_one() -> None:
    cache = SessionCache(SessionLimits(max_tokens=100))
    _talk(cache, system("s" * 40), user("begin"), num_tokens=20)
    num_cuts = 0
    for number in range(40):
        before = cache.get(KEY)
        assert before is not None
        # About fifteen tokens for each turn, which has about as many letters as the instructions.
        _talk(cache, user(f"{number:040d}"), num_tokens=before.num_tokens + 15)
        session = cache.get(KEY)
        assert session is not None
        assert session.num_tokens <= 100
        assert session.messages[0] == system("s" * 40)
        assert [message["role"] for message in session.messages[1:3]] == ["user", "assistant"]
        assert session.messages[-2] == user(f"{number:040d}")
        num_cuts += len(session.messages) < len(before.messages) + 2
    # Each cut makes room for more than one turn, as a prompt that begins otherwise is computed anew.
    assert 5 <= num_cuts <= 20
    assert cache.num_tokens == session.num_tokens


def test_a_turn_that_is_too_long_alone_leaves_the_instructions_alone() -> None:
    cache = SessionCache(SessionLimits(max_tokens=100))
    _talk(cache, system("s"), user("x" * 1000), num_tokens=500)
    session = cache.get(KEY)
    assert session is not None
    assert session.messages == (system("s"),)
    _talk(cache, system("s" * 1000), user("x"), num_tokens=500)
    _talk(cache, system("s" * 1000), user("x" * 1000), num_tokens=500)
    assert cache.get(KEY) is None
    assert (len(cache), cache.num_tokens) == (0, 0)


def test_fields_that_no_template_shows_cannot_fill_the_memory() -> None:
    cache = SessionCache(SessionLimits(max_tokens=100))
    _talk(cache, {**user("x"), "note": "n" * 100_000}, num_tokens=5)
    assert cache.get(KEY) is None


def test_a_forgotten_session_begins_anew() -> None:
    cache = SessionCache()
    _talk(cache, user("1"))
    assert cache.forget(KEY)
    assert not cache.forget(KEY)
    assert _talk(cache, user("2")) == [user("2")]


def test_a_session_leaves_half_the_context_and_limits_below_one_are_refused() -> None:
    assert SessionLimits().within(1000).max_tokens == 500
    assert SessionLimits().within(100_000).max_tokens == 4096
    with pytest.raises(InvalidConfig, match="--max-sessions: must be at least 1, not 0"):
        SessionLimits(max_sessions=0)
    with pytest.raises(InvalidConfig, match="--session-tokens: must be at least 1, not -1"):
        SessionLimits(max_tokens=-1)
