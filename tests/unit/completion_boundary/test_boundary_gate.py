"""How far an answer must have come before the model may end it."""

import pytest

from ferrum.completion_boundary.boundary_gate import BoundaryGate
from ferrum.completion_boundary.compile_boundary import compile_boundary
from ferrum.core.completion_boundary import (
    IMMEDIATE,
    AfterDelimiterAndPayload,
    CompletionBoundary,
    Envelope,
    boundary_from_mapping,
    boundary_to_mapping,
)
from ferrum.core.errors import InvalidRequest, MalformedAnswer
from ferrum.core.token_gate import TokenGate, is_allowed
from ferrum.testing.byte_tokenizer import ByteTokenizer

EOS, BOS = ByteTokenizer.EOS_ID, ByteTokenizer.BOS_ID
THINK = AfterDelimiterAndPayload("</think>")
CALLS = AfterDelimiterAndPayload("#", Envelope("<<c", ">>", max_envelopes=2))


def compiled(boundary: CompletionBoundary, max_tokens: int = 100) -> BoundaryGate | None:
    return compile_boundary(boundary, ByteTokenizer(), [EOS], 258, max_tokens)


def opens(boundary: CompletionBoundary, text: str | list[int]) -> str:
    """For each token of ``text``, and before the first: "o" where the model may end, "x" where not."""
    gate: TokenGate | None = compiled(boundary)
    assert gate is not None
    seen = "o" if is_allowed(gate.mask, EOS) else "x"
    for token_id in text.encode() if isinstance(text, str) else text:
        gate = gate.after(token_id)
        if gate.error is not None:
            return seen + "!"
        seen += "o" if is_allowed(gate.mask, EOS) else "x"
        assert is_allowed(gate.mask, ord("a"))
    return seen


def test_the_model_may_end_after_the_delimiter_and_a_character() -> None:
    assert opens(THINK, "hm</think>\n a b") == "x" * 13 + "ooo"


def test_an_overlapping_beginning_of_the_delimiter_is_kept() -> None:
    assert opens(AfterDelimiterAndPayload("aab"), "aaabc") == "xxxxxo"


def test_what_is_left_of_a_token_after_the_delimiter_counts() -> None:
    class Words(ByteTokenizer):
        def token_bytes(self, token_id: int) -> bytes:
            return {1: b"so.</thi", 2: b"nk> Yes", 3: b"nk>  "}.get(token_id, b"?")

    gate: TokenGate | None = compile_boundary(THINK, Words(), [EOS], 258, 100)
    assert gate is not None
    assert is_allowed(gate.after(1).after(2).mask, EOS)
    assert not is_allowed(gate.after(1).after(3).mask, EOS)


@pytest.mark.parametrize("text", ["\u3000", "\u2028\t\n ", "\ufffd"])
def test_white_space_and_replacement_characters_are_no_payload(text: str) -> None:
    assert opens(THINK, f"</think>{text}").count("o") == 0
    assert opens(THINK, f"</think>{text}é").endswith("xo")


def test_bytes_that_are_no_text_are_no_payload() -> None:
    assert opens(THINK, [*b"</think>", 0xFF, 0xE2, ord(" ")]).count("o") == 0


def test_a_delimiter_that_is_a_control_token_is_that_token_and_not_its_text() -> None:
    boundary = AfterDelimiterAndPayload("<bos>")
    assert opens(boundary, [*b"<bos>a"]).count("o") == 0
    assert opens(boundary, [BOS, ord("a")]) == "xxo"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#a", "xxo"),  # a payload
        ("# <<c", "xxxxxx"),  # an open envelope
        ("#<<c a>>", "xxxxxxxxo"),  # a closed one
        ("#<<c>> ", "xxxxxxoo"),  # and white space after it
        ("#<<c>><", "xxxxxxox"),  # a second one may be beginning
        ("#<<c>><a", "xxxxxxoxo"),  # but was none
        ("#<<c>><<c", "xxxxxxoxxx"),  # the second
        ("#<<c>><<c>>", "xxxxxxoxxxxo"),
        ("#<<c>><<c>><<c", "xxxxxxoxxxxoxx!"),  # the third is too many
        ("#<<", "xxxx"),  # perhaps an envelope
        ("#<<x", "xxxxo"),  # no: a payload
        ("#<<<", "xxxxo"),  # the first of them is one
        ("# \t<", "xxxxx"),
        ("#<<c>", "xxxxxx"),
    ],
)
def test_an_envelope_is_another_way_to_be_done(text: str, expected: str) -> None:
    assert opens(CALLS, text) == expected


def test_white_space_that_was_part_of_a_possible_envelope_is_no_payload() -> None:
    boundary = AfterDelimiterAndPayload("#", Envelope("  <", ">"))
    assert opens(boundary, "#   <") == "xxxxxx"
    assert opens(boundary, "#  x") == "xxxxo"


def test_an_envelope_too_many_names_the_limit_and_leaves_the_place_as_it_was() -> None:
    gate: TokenGate | None = compiled(CALLS)
    assert gate is not None
    for byte in b"#<<c>><<c>><<":
        gate = gate.after(byte)
    following = gate.after(ord("c"))
    assert isinstance(following.error, MalformedAnswer)
    assert str(following.error) == (
        "the model's answer is malformed: envelope 3 begins, and at most 2 are allowed"
    )
    assert isinstance(following, BoundaryGate)
    assert isinstance(gate, BoundaryGate)
    assert (following.phase, following.num_matched, following.num_opened) == (
        gate.phase,
        gate.num_matched,
        gate.num_opened,
    )
    assert gate.error is None


def test_a_model_without_end_tokens_and_an_immediate_boundary_need_no_gate() -> None:
    assert compile_boundary(THINK, ByteTokenizer(), [], 258, 100) is None
    assert compiled(IMMEDIATE) is None


@pytest.mark.parametrize(
    ("boundary", "max_tokens", "problem"),
    [
        (THINK, 8, r"'</think>' takes 8 tokens, and max_tokens is 8"),
        (AfterDelimiterAndPayload("<eos>"), 100, "token 256 in it, which ends"),
        (AfterDelimiterAndPayload("a", Envelope("<eos>", "b")), 100, "token 256 in it, which ends"),
        (AfterDelimiterAndPayload("a", Envelope("b", "<eos>")), 100, "token 256 in it, which ends"),
    ],
)
def test_a_boundary_that_cannot_be_kept_is_refused(
    boundary: CompletionBoundary, max_tokens: int, problem: str
) -> None:
    with pytest.raises(InvalidRequest, match=problem) as caught:
        compiled(boundary, max_tokens)
    assert caught.value.param is not None
    assert caught.value.param.startswith("completion_boundary")
    assert compiled(THINK, 9) is not None


def test_a_text_that_the_vocabulary_cannot_write_is_refused() -> None:
    class Deaf(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            return []

    with pytest.raises(InvalidRequest, match="no token and no tokens"):
        compile_boundary(THINK, Deaf(), [EOS], 258, 100)


def test_plain_values_become_a_boundary_and_back() -> None:
    values = {"delimiter": "#", "envelope": {"open_text": "<<c", "close_text": ">>", "max_envelopes": 2}}
    assert boundary_from_mapping(values) == CALLS
    assert boundary_to_mapping(CALLS) == values
    assert boundary_from_mapping(boundary_to_mapping(THINK)) == THINK
    assert boundary_from_mapping(None) == IMMEDIATE
    assert boundary_to_mapping(IMMEDIATE) is None


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ("</think>", "completion_boundary"),
        ({}, "completion_boundary.delimiter"),
        ({"delimiter": ""}, "completion_boundary.delimiter"),
        ({"delimiter": 5}, "completion_boundary.delimiter"),
        ({"delimiter": "\ud800"}, "completion_boundary.delimiter"),
        ({"delimiter": "x" * 257}, "completion_boundary.delimiter"),
        ({"delimiter": "x", "after": 1}, "completion_boundary.after"),
        ({"delimiter": "x", "envelope": []}, "completion_boundary.envelope"),
        ({"delimiter": "x", "envelope": {"open_text": "a"}}, "completion_boundary.envelope.close_text"),
        (
            {"delimiter": "x", "envelope": {"open_text": "a", "close_text": "b", "max_envelopes": 0}},
            "completion_boundary.envelope.max_envelopes",
        ),
        (
            {"delimiter": "x", "envelope": {"open_text": "a", "close_text": "b", "max_envelopes": True}},
            "completion_boundary.envelope.max_envelopes",
        ),
    ],
)
def test_values_that_are_no_boundary_are_refused_by_name(values: object, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        boundary_from_mapping(values)
    assert caught.value.param == param
