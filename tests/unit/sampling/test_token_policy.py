"""What a token policy keeps out of answers, and what it never does."""

import weakref
from typing import Any

import numpy as np
import pytest

from ferrum.core.token_gate import is_allowed
from ferrum.core.token_policy_level import TokenPolicyLevel
from ferrum.sampling.policy_cache import PolicyCache
from ferrum.sampling.policy_gate import policy_gate
from ferrum.sampling.token_policy import TokenPolicy
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.tokenization.tokenizer import Tokenizer
from tiny_vocabularies import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    byte_level_values,
    metadata,
    sentencepiece_values,
)

OFF, VOCABULARY, STRICT = TokenPolicyLevel
BYTES = 3  # where the 256 bytes begin in byte_level_values


def with_tokens(*added: tuple[str, int], **changes: Any) -> Tokenizer:
    """The byte-level vocabulary with more tokens at its end, from id 273 on."""
    values = byte_level_values(**changes)
    values["tokenizer.ggml.tokens"] = [*values["tokenizer.ggml.tokens"], *(text for text, _ in added)]
    types = np.append(values["tokenizer.ggml.token_type"], [kind for _, kind in added]).astype(np.int32)
    return tokenizer_from_gguf(metadata({**values, "tokenizer.ggml.token_type": types}), None)


FIRST = with_tokens().vocab_size


def left_of(policy: TokenPolicy) -> set[int]:
    return {i for i in range(policy.vocabulary_size + 64) if is_allowed(policy.plain_mask, i)}


@pytest.mark.parametrize("level", [OFF, VOCABULARY])
@pytest.mark.parametrize("values", [byte_level_values, sentencepiece_values])
def test_a_whole_vocabulary_as_wide_as_the_model_has_no_mask(level: TokenPolicyLevel, values: Any) -> None:
    tokenizer = tokenizer_from_gguf(metadata(values()), None)
    policy = TokenPolicy(tokenizer, tokenizer.vocab_size, level)
    assert policy.plain_mask is None
    assert policy_gate(policy, tokenizer, (), ()) is None


def test_ids_beyond_the_vocabulary_and_holes_in_it_are_forbidden_unless_it_is_off() -> None:
    tokenizer = with_tokens(("", NORMAL), ("x", NORMAL), (f"[PAD{FIRST + 2}]", UNUSED))
    policy = TokenPolicy(tokenizer, FIRST + 40, VOCABULARY)
    assert policy.forbidden_ids == {FIRST, FIRST + 2, *range(FIRST + 3, FIRST + 40)}
    assert left_of(policy) == set(range(FIRST)) | {FIRST + 1}
    assert TokenPolicy(tokenizer, FIRST + 40, OFF).plain_mask is None


def test_unused_tokens_with_a_text_of_their_own_may_have_been_trained() -> None:
    """Some models write their reasoning between <unused94> and <unused95>."""
    tokenizer = with_tokens(("<unused94>", UNUSED), ("<unused95>", CONTROL), ("[PAD7]", UNUSED))
    assert TokenPolicy(tokenizer, tokenizer.vocab_size, VOCABULARY).forbidden_ids == frozenset()
    strict = TokenPolicy(tokenizer, tokenizer.vocab_size, STRICT)
    assert {FIRST, FIRST + 1, FIRST + 2} <= strict.forbidden_ids


def test_a_vocabulary_without_any_text_says_nothing_of_holes() -> None:
    class Mute(ByteTokenizer):
        def __init__(self) -> None:
            super().__init__()
            self.unused_ids = frozenset(range(258))

    assert TokenPolicy(Mute(), 258, VOCABULARY).plain_mask is None


@pytest.mark.parametrize(
    "text",
    [
        "<unk>",
        "[UNK]",
        "<|pad|>",
        "[PAD]",
        "<mask>",
        "<|reserved_special_token_5|>",
        "[unused3]",
        "<|video_pad|>",
        "<UNUSED_1>",
        "\u00ef\u00bf\u00bd",
        "x\u00ef\u00bf\u00bdy",
        "x\ufffdy",
    ],
)
def test_texts_that_no_good_answer_has_in_it_are_forbidden_when_it_is_strict(text: str) -> None:
    tokenizer = with_tokens((text, USER_DEFINED))
    assert FIRST in TokenPolicy(tokenizer, tokenizer.vocab_size, STRICT).forbidden_ids
    assert FIRST not in TokenPolicy(tokenizer, tokenizer.vocab_size, VOCABULARY).forbidden_ids


@pytest.mark.parametrize("text", ["<table>", "mask", "unk", "<b>", "reserved", "[1]", "pad>", "<>", "\ufffc"])
def test_ordinary_texts_are_allowed_when_it_is_strict(text: str) -> None:
    tokenizer = with_tokens((text, USER_DEFINED))
    assert FIRST not in TokenPolicy(tokenizer, tokenizer.vocab_size, STRICT).forbidden_ids


def test_roles_and_unnamed_control_tokens_are_forbidden_and_ends_and_named_ones_are_not() -> None:
    tokenizer = with_tokens(
        ("<fim>", CONTROL),
        ("</think>", CONTROL),
        ("<|eot_id|>", CONTROL),
        **{"tokenizer.ggml.unknown_token_id": 5, "tokenizer.ggml.padding_token_id": 2},
    )
    policy = TokenPolicy(tokenizer, tokenizer.vocab_size, STRICT)
    # <|im_start|> is the beginning token; <|im_end|> is padding and an end: an end.
    assert {1, 5, FIRST} <= policy.forbidden_ids
    assert not {0, 2, FIRST + 1, FIRST + 2} & policy.forbidden_ids


def test_separator_class_and_mask_tokens_are_roles() -> None:
    keys = ("seperator_token_id", "cls_token_id", "mask_token_id")
    tokenizer = with_tokens(**{f"tokenizer.ggml.{key}": 60 + i for i, key in enumerate(keys)})
    assert {60, 61, 62} <= set(tokenizer.role_ids)


def test_bytes_that_cannot_become_text_are_forbidden_and_those_that_can_only_go_on_may_not_begin() -> None:
    tokenizer = with_tokens()
    policy = TokenPolicy(tokenizer, tokenizer.vocab_size, STRICT)
    impossible = {0xC0, 0xC1, *range(0xF5, 0x100)}
    assert {byte for byte in range(256) if BYTES + byte in policy.forbidden_ids} == impossible
    beginnings = {byte for byte in range(256) if is_allowed(policy.plain_mask, BYTES + byte)}
    assert beginnings == set(range(256)) - impossible - set(range(0x80, 0xC0))


@pytest.mark.parametrize(
    ("pending", "following"),
    [
        (b"\xc3", range(0x80, 0xC0)),
        (b"\xe0", range(0xA0, 0xC0)),
        (b"\xed", range(0x80, 0xA0)),
        (b"\xf0", range(0x90, 0xC0)),
        (b"\xf4", range(0x80, 0x90)),
        (b"\xf0\x9f", range(0x80, 0xC0)),
        (b"\xef\xbf", [*range(0x80, 0xBD), 0xBE, 0xBF]),
    ],
)
def test_after_part_of_a_character_only_its_rest_may_come(pending: bytes, following: Any) -> None:
    tokenizer = with_tokens()
    policy = TokenPolicy(tokenizer, tokenizer.vocab_size, STRICT)
    allowed = {i for i in range(policy.vocabulary_size) if is_allowed(policy.mask_after(pending), i)}
    assert allowed == {BYTES + byte for byte in following}
    assert policy.mask_after(pending) is policy.mask_after(pending)


def test_a_vocabulary_that_cannot_go_on_with_a_character_begins_another() -> None:
    class Ascii(ByteTokenizer):
        def token_bytes(self, token_id: int) -> bytes:
            return b"a" if 0x80 <= token_id < 0xC0 else super().token_bytes(token_id)

    policy = TokenPolicy(Ascii(), 258, STRICT)
    assert policy.mask_after(b"\xc3") is policy.plain_mask


def test_a_gate_follows_the_bytes_of_an_answer() -> None:
    tokenizer = ByteTokenizer()
    gate = policy_gate(TokenPolicy(tokenizer, 258, STRICT), tokenizer, (), ())
    assert gate is not None
    for byte in "é🙂x".encode():
        assert is_allowed(gate.mask, byte)
        gate = gate.after(byte)
        in_character = gate.mask is not None and not is_allowed(gate.mask, ord("x"))
        assert is_allowed(gate.mask, ByteTokenizer.EOS_ID) is not in_character
    assert not is_allowed(gate.mask, 0x80)
    assert not is_allowed(gate.mask, ByteTokenizer.BOS_ID)


def test_a_request_can_free_what_it_names_and_forbid_what_comes_first() -> None:
    tokenizer = ByteTokenizer()
    policy = TokenPolicy(tokenizer, 258, STRICT)
    gate = policy_gate(policy, tokenizer, {ByteTokenizer.BOS_ID}, {ord("a"), ByteTokenizer.EOS_ID})
    assert gate is not None
    assert is_allowed(gate.mask, ByteTokenizer.BOS_ID)
    assert not is_allowed(gate.mask, ord("a"))
    following = gate.after(ord("b"))
    assert is_allowed(following.mask, ord("a"))
    assert is_allowed(following.mask, ByteTokenizer.EOS_ID)
    assert is_allowed(following.mask, ByteTokenizer.BOS_ID)
    assert not is_allowed(policy.plain_mask, ByteTokenizer.BOS_ID)


def test_what_may_not_come_first_needs_no_policy() -> None:
    tokenizer = ByteTokenizer()
    gate = policy_gate(TokenPolicy(tokenizer, 258, VOCABULARY), tokenizer, (), {5})
    assert gate is not None
    assert [i for i in range(300) if not is_allowed(gate.mask, i)] == [5, *range(258, 300)]
    assert gate.after(7).mask is None


def test_a_policy_is_made_once_for_a_tokenizer_a_size_and_a_level() -> None:
    cache, tokenizer = PolicyCache(), ByteTokenizer()
    policy = cache.policy_for(tokenizer, 258, STRICT)
    assert cache.policy_for(tokenizer, 258, STRICT) is policy
    assert cache.policy_for(tokenizer, 260, STRICT) is not policy
    assert cache.policy_for(tokenizer, 258, VOCABULARY) is not policy
    assert cache.policy_for(ByteTokenizer(), 258, STRICT) is not policy


def test_a_policy_dies_with_its_tokenizer_and_its_address_inherits_nothing() -> None:
    cache = PolicyCache()
    for number in range(20):  # The next one very likely comes to lie where the last one was.
        tokenizer = ByteTokenizer()
        tokenizer.unused_ids = frozenset({7}) if number % 2 else frozenset()
        policy = cache.policy_for(tokenizer, 258, VOCABULARY)
        assert policy.forbidden_ids == tokenizer.unused_ids
        watch = weakref.ref(tokenizer)
        del tokenizer
        assert watch() is None, "the policy keeps its tokenizer alive"
        assert cache.num_tokenizers == 0


def test_a_tokenizer_that_cannot_be_held_weakly_gets_a_policy_all_the_same() -> None:
    class Slotted:
        __slots__ = ()
        vocab_size, eos_ids, control_ids, role_ids, unused_ids = 3, (), (), (), (1,)

        def token_id(self, text: str) -> int | None:
            return None

        def token_bytes(self, token_id: int) -> bytes:
            return b"x"

    cache = PolicyCache()
    assert cache.policy_for(Slotted(), 3, VOCABULARY).forbidden_ids == {1}
    assert cache.num_tokenizers == 0
