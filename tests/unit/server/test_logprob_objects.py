"""The shapes of log-probabilities on the wire, where tokens are no whole text."""

from ferrum.core.logprobs import ScoredToken, TokenLogprobs
from ferrum.server.logprob_objects import chat_logprobs, completion_logprobs, prompt_logprobs

HALF = b"\xf0\x9f"


def entry(data: bytes, *top: ScoredToken, logprob: float | None = -1.0, offset: int = 0) -> TokenLogprobs:
    return TokenLogprobs(7, data, False, offset, logprob, None if logprob is None else 2, top)


def scored(data: bytes, token_id: int = 9, logprob: float = -0.5, rank: int = 1) -> ScoredToken:
    return ScoredToken(token_id, data, False, logprob, rank)


def test_half_a_character_is_told_by_its_bytes() -> None:
    found = chat_logprobs([entry(HALF, scored(b"\x98"))])
    assert found["content"] == [
        {
            "token": "\\xf0\\x9f",
            "logprob": -1.0,
            "bytes": [0xF0, 0x9F],
            "top_logprobs": [{"token": "\\x98", "logprob": -0.5, "bytes": [0x98]}],
        }
    ]
    columns = completion_logprobs([entry(HALF, scored(b"\x98"))], 1, 5)
    assert columns["tokens"] == ["bytes:\\xf0\\x9f"]
    assert columns["top_logprobs"] == [{"bytes:\\x98": -0.5, "bytes:\\xf0\\x9f": -1.0}]


def test_a_control_token_has_a_name_and_no_bytes() -> None:
    control = TokenLogprobs(2, b"<|im_end|>", True, 4, -0.25, 1)
    [told] = chat_logprobs([control])["content"]
    assert (told["token"], told["bytes"]) == ("<|im_end|>", None)


def test_tokens_that_read_alike_are_told_once_with_the_likelier_ones_number() -> None:
    columns = completion_logprobs([entry(b"a", scored(b"x"), scored(b"x", 10, -0.75, 2))], 2, 5)
    assert columns["top_logprobs"] == [{"x": -0.5, "a": -1.0}]


def test_tokens_behind_the_end_of_the_text_stand_at_its_end() -> None:
    columns = completion_logprobs([entry(b"a", offset=3), entry(b"b", offset=9)], 0, 5)
    assert columns["text_offset"] == [3, 5]


def test_what_follows_nothing_has_no_number_and_the_impossible_a_finite_one() -> None:
    columns = completion_logprobs([entry(b"a", logprob=None), entry(b"b", logprob=float("-inf"))], 0, 5)
    assert columns["token_logprobs"] == [None, -9999.0]
    assert columns["top_logprobs"] == [None, {"b": -9999.0}]


def test_only_as_many_as_were_asked_for_are_told() -> None:
    top = [scored(bytes([number]), number, -number, number) for number in range(65, 70)]
    assert completion_logprobs([entry(b"a", *top)], 2, 5)["top_logprobs"] == [{"A": -65, "B": -66, "a": -1.0}]
    [first, second] = prompt_logprobs([entry(b"a", logprob=None), entry(b"a", *top)], 1)
    assert first is None
    assert second == {
        "7": {"logprob": -1.0, "rank": 2, "decoded_token": "a"},
        "65": {"logprob": -65, "rank": 65, "decoded_token": "A"},
    }
