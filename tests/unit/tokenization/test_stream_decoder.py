"""Streamed text equals text decoded at once, whatever the ids."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.tokenization.stream_decoder import StreamDecoder
from ferrum.tokenization.tokenizer import Tokenizer
from tiny_vocabularies import byte_level_values, metadata, sentencepiece_values

KINDS = {"bytes": byte_level_values, "pieces": sentencepiece_values}


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    return tokenizer_from_gguf(metadata(KINDS[kind]()), None)


def stream(tokenizer: Tokenizer, ids: list[int], preceding_ids: tuple[int, ...] = ()) -> list[str]:
    decoder = StreamDecoder(tokenizer, preceding_ids)
    return [*map(decoder.push, ids), decoder.flush()]


@pytest.mark.parametrize("kind", KINDS)
@given(ids=st.lists(st.integers(0, 300), max_size=40))
def test_deltas_join_to_the_whole_text(kind: str, ids: list[int]) -> None:
    tokenizer = tokenizer_of(kind)
    deltas = stream(tokenizer, ids)
    assert "".join(deltas) == tokenizer.decode(ids)
    for delta in deltas:
        delta.encode()


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(max_size=30))
def test_valid_text_streams_without_replacement_characters(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    if kind == "pieces":
        text = text.replace("▁", "")
    deltas = stream(tokenizer, tokenizer.encode(text))
    assert "".join(deltas) == text
    assert deltas[-1] == ""


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_an_answer_that_continues_a_text_keeps_its_spaces(kind: str, data: st.DataObject) -> None:
    tokenizer = tokenizer_of(kind)
    before = tokenizer.encode(data.draw(st.text("the lo!", min_size=1, max_size=8)))
    ids = [i for i in data.draw(st.lists(st.integers(3, 295), max_size=20)) if i not in tokenizer.control_ids]
    whole = tokenizer.decode([*before, *ids])
    assert tokenizer.decode(before) + "".join(stream(tokenizer, ids, tuple(before))) == whole


def test_a_character_is_held_back_until_it_is_whole() -> None:
    tokenizer = tokenizer_of("bytes")
    ids = [3 + byte for byte in "é🙂".encode()]
    assert stream(tokenizer, ids) == ["", "é", "", "", "", "🙂", ""]


def test_a_cut_character_becomes_one_replacement_at_the_end() -> None:
    tokenizer = tokenizer_of("bytes")
    for size in (1, 2, 3):
        ids = [3 + byte for byte in "🙂".encode()[:size]]
        assert stream(tokenizer, ids) == [""] * size + ["�"]
        assert tokenizer.decode(ids) == "�"


def test_control_tokens_write_nothing_and_add_no_space() -> None:
    tokenizer = tokenizer_of("pieces")
    the = tokenizer.token_id("▁the")
    assert the is not None
    assert stream(tokenizer, [1, the, 2, the, 0]) == ["", "the", "", " the", "", ""]
    assert stream(tokenizer, [the], (1, 2)) == ["the", ""]
    assert stream(tokenizer, [the], (1, the)) == [" the", ""]
