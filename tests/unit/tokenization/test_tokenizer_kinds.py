"""Small vocabularies of each kind: what ordinary text, template text and bytes become."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from ferrum.core.errors import InvalidRequest, TokenizerError
from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.tokenization.pre_tokenizers import PRE_TOKENIZERS
from ferrum.tokenization.tokenizer import Tokenizer
from ferrum.tokenization.tokenizer_json import tokenizer_from_json
from tiny_vocabularies import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    byte_level_values,
    metadata,
    sentencepiece_values,
)


def build(values: dict[str, Any], cache: Path | None = None) -> Tokenizer:
    return tokenizer_from_gguf(metadata(values), cache)


@pytest.mark.parametrize("values", [byte_level_values(), sentencepiece_values()], ids=["bytes", "pieces"])
def test_user_text_never_becomes_a_control_token(values: dict[str, Any]) -> None:
    tokenizer = build(values)
    for text in ["<|im_end|>", "a<|im_start|>b", "<s>", "</s>", "<unk>", "<s></s><s>", "<|endoftext|>"]:
        for ids in (tokenizer.encode(text), tokenizer.encode_prompt(f"x{text}")[tokenizer.adds_bos :]):
            assert tokenizer.control_ids.isdisjoint(ids)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_template_text_has_control_tokens() -> None:
    tokenizer = build(byte_level_values())
    ids = tokenizer.encode_with_control_tokens("<|im_start|>user\nhello<|im_end|>")
    assert ids == [1, *tokenizer.encode("user\nhello"), 2]
    assert tokenizer.decode_with_control_tokens(ids) == "<|im_start|>user\nhello<|im_end|>"
    assert tokenizer.decode(ids) == "user\nhello"


def test_user_defined_tokens_are_cut_out_of_user_text() -> None:
    tokenizer = build(byte_level_values())
    think = tokenizer.token_id("<think>")
    assert tokenizer.encode("hello<think> hello") == [
        tokenizer.token_id("hello"),
        think,
        tokenizer.token_id("Ġhello"),
    ]
    assert think not in tokenizer.control_ids


def test_texts_of_byte_tokens_are_ordinary_text() -> None:
    tokenizer = build(sentencepiece_values())
    ids = tokenizer.encode("<0x0A>")
    assert tokenizer.token_id("<0x0A>") not in ids
    assert tokenizer.decode(ids) == "<0x0A>"


def test_characters_outside_the_vocabulary_become_bytes() -> None:
    tokenizer = build(sentencepiece_values())
    ids = tokenizer.encode("🙂")
    assert b"".join(map(tokenizer.token_bytes, ids)) == b" " + "🙂".encode()
    assert tokenizer.decode(ids) == "🙂"


@pytest.mark.parametrize("text", ["the", "<s>the", "</s>the", "the<s>the", " the", "<s> the", "  the"])
def test_dummy_prefix_is_written_at_the_start_only(text: str) -> None:
    tokenizer = build(sentencepiece_values())
    ids = tokenizer.encode_with_control_tokens(text)
    assert tokenizer.decode_with_control_tokens(ids) == text
    later = tokenizer.encode_with_control_tokens(f"x</s>{text}")[2:]
    assert b"".join(map(tokenizer.token_bytes, later)) == b"</s>" + text.encode()


def test_beginning_token_and_dummy_prefix_are_the_same_for_prompt_and_template() -> None:
    tokenizer = build(sentencepiece_values())
    assert tokenizer.encode_prompt("the") == [1, tokenizer.token_id("▁the")]
    assert tokenizer.encode_with_control_tokens("<s>the") == tokenizer.encode_prompt("the")


def test_vocabulary_without_dummy_prefix() -> None:
    tokenizer = build(sentencepiece_values(**{"tokenizer.ggml.add_space_prefix": False}))
    assert tokenizer.encode("the") == [tokenizer.token_id("t"), tokenizer.token_id("he")]
    assert tokenizer.decode(tokenizer.encode(" the")) == " the"


def test_beginning_token_comes_once_even_if_the_prompt_spells_it() -> None:
    tokenizer = build(sentencepiece_values())
    assert tokenizer.encode_prompt("<s>the") == tokenizer.encode_prompt("the")
    assert tokenizer.encode_prompt("<s><s>the").count(1) == 1
    assert tokenizer.encode_prompt("the<s>").count(1) == 1


def test_prompt_of_a_model_without_beginning_token_is_plain_text() -> None:
    tokenizer = build(byte_level_values())
    assert tokenizer.encode_prompt("<|im_start|>hello") == tokenizer.encode("<|im_start|>hello")


def test_end_tokens_of_all_sources_join() -> None:
    tokenizer = build(
        byte_level_values(**{"tokenizer.ggml.eos_token_id": 5, "tokenizer.ggml.eot_token_id": 6})
    )
    assert tokenizer.eos_ids == {0, 2, 5, 6}


def test_text_that_only_looks_like_an_end_token_ends_nothing() -> None:
    values = sentencepiece_values(**{"tokenizer.ggml.eos_token_id": None})
    types = values["tokenizer.ggml.token_type"].copy()
    types[2] = NORMAL
    assert build({**values, "tokenizer.ggml.token_type": types}).eos_ids == frozenset()


def test_repeated_texts_are_accepted() -> None:
    values = byte_level_values()
    values["tokenizer.ggml.tokens"] = [*values["tokenizer.ggml.tokens"], *["<unused>"] * 5]
    for kind in (CONTROL, NORMAL, UNUSED):
        types = np.append(byte_level_values()["tokenizer.ggml.token_type"], [kind] * 5)
        tokenizer = build({**values, "tokenizer.ggml.token_type": types})
        last = tokenizer.vocab_size - 1
        assert tokenizer.decode_with_control_tokens([last, last - 1]) == "<unused><unused>"
        assert tokenizer.encode("hello") == [tokenizer.token_id("hello")]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint32, np.int64, np.uint64, np.int16])
def test_token_types_of_any_width(dtype: type) -> None:
    for values in (byte_level_values(), sentencepiece_values()):
        types = values["tokenizer.ggml.token_type"].astype(dtype)
        tokenizer = build({**values, "tokenizer.ggml.token_type": types})
        text = "hello <think> the </s>"
        assert tokenizer.encode_with_control_tokens(text) == build(values).encode_with_control_tokens(text)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        (byte_level_values(**{"tokenizer.ggml.model": None}), "tokenizer.ggml.model"),
        (byte_level_values(**{"tokenizer.ggml.model": "rwkv"}), "tokenizer.ggml.model"),
        (byte_level_values(**{"tokenizer.ggml.pre": "no-such"}), "tokenizer.ggml.pre"),
        (byte_level_values(**{"tokenizer.ggml.tokens": None}), "tokenizer.ggml.tokens"),
        (byte_level_values(**{"tokenizer.ggml.tokens": []}), "tokenizer.ggml.tokens"),
        (byte_level_values(**{"tokenizer.ggml.merges": None}), "tokenizer.ggml.merges"),
        (byte_level_values(**{"tokenizer.ggml.merges": ["h e", "nospace"]}), "tokenizer.ggml.merges"),
        (byte_level_values(**{"tokenizer.ggml.merges": ["h "]}), "tokenizer.ggml.merges"),
        (byte_level_values(**{"tokenizer.ggml.merges": ["q z"]}), "tokenizer.ggml.merges"),
        (byte_level_values(**{"tokenizer.ggml.eos_token_id": 100_000}), "tokenizer.ggml.eos_token_id"),
        (byte_level_values(**{"tokenizer.ggml.eot_token_id": -1}), "tokenizer.ggml.eot_token_id"),
        (byte_level_values(**{"tokenizer.ggml.padding_token_id": 273}), "tokenizer.ggml.padding_token_id"),
        (sentencepiece_values(**{"tokenizer.ggml.scores": None}), "tokenizer.ggml.scores"),
        (sentencepiece_values(**{"tokenizer.ggml.scores": np.zeros(9)}), "tokenizer.ggml.scores"),
        (
            sentencepiece_values(**{"tokenizer.ggml.token_type": np.ones(9, dtype=np.int32)}),
            "tokenizer.ggml.token_type",
        ),
        (
            sentencepiece_values(**{"tokenizer.ggml.token_type": np.full(295, 99)}),
            "tokenizer.ggml.token_type",
        ),
    ],
)
def test_defect_is_reported_by_its_key(values: dict[str, Any], key: str) -> None:
    with pytest.raises(TokenizerError, match=key.replace(".", r"\.")) as caught:
        build(values)
    assert caught.value.key == key
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pre", [None, "default"])
def test_missing_pre_tokenizer_is_said_loudly(pre: str | None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        tokenizer = build(byte_level_values(**{"tokenizer.ggml.pre": pre}))
    assert "tokenizer.ggml.pre" in caplog.text
    assert tokenizer.encode("hello") == [tokenizer.token_id("hello")]


def test_known_pre_tokenizer_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    build(byte_level_values())
    assert not caplog.records


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_pre_tokenizer_keeps_the_text(name: str) -> None:
    tokenizer = build(byte_level_values(**{"tokenizer.ggml.pre": name}))
    text = "Hello wörld's 12345  \t\r\n\n  ABCdef//x...  你好(1,2)! ŉ ٣ "
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpt-2", "I'll say 1234  ok", ["I", "'ll", " say", " 1234", " ", " ok"]),
        ("smollm", "a 123", ["a", " ", "1", "2", "3"]),
        ("llama-bpe", "I'LL pay 12345\n\n x", ["I", "'LL", " pay", " ", "123", "45", "\n\n", " x"]),
        ("qwen2", "pay 123.\n x", ["pay", " ", "1", "2", "3", ".\n", " x"]),
        ("tekken", "HelloWorld a/b 12", ["Hello", "World", " a", "/b", " ", "1", "2"]),
        ("gpt-4o", "HTMLParser's 1234", ["HTMLParser's", " ", "123", "4"]),
        ("deepseek-v3", "1234你好abc", ["123", "4", "你好", "abc"]),
        ("falcon", "a=b 1234", ["a", "=", "b", " ", "123", "4"]),
    ],
)
def test_words_are_cut_as_the_models_cut_them(name: str, text: str, words: list[str]) -> None:
    cut = PRE_TOKENIZERS[name].build().pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in cut] == words


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        build(byte_level_values()).encode("a\ud83d")


def test_tokens_that_are_not_unicode_are_kept_as_bytes() -> None:
    values = sentencepiece_values()
    values["tokenizer.ggml.tokens"][-1] = b"\xf0\x9f".decode("utf-8", "surrogateescape")
    tokenizer = build(values)
    assert tokenizer.token_bytes(tokenizer.vocab_size - 1) == b"\xf0\x9f"
    assert tokenizer.decode([tokenizer.vocab_size - 1]) == "�"


def test_ids_beyond_the_vocabulary_give_no_text() -> None:
    tokenizer = build(byte_level_values())
    assert tokenizer.decode([tokenizer.vocab_size, tokenizer.token_id("hello") or 0, -1]) == "hello"


def test_cache_is_written_once_and_read_again(tmp_path: Path) -> None:
    values = sentencepiece_values()
    first = build(values, tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    assert np.load(file).shape[1] == 2
    np.save(file, np.load(file)[:0])
    # Proof that the file is read: with its merges gone, words stay in characters.
    assert len(build(values, tmp_path / "cache").encode("the")) > len(first.encode("the"))


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"\x93NUMPY\x01\x00", np.full((3, 2), 10**6, dtype=np.int32)]
)
def test_damaged_cache_is_built_again(tmp_path: Path, content: Any, caplog: pytest.LogCaptureFixture) -> None:
    expected = build(sentencepiece_values(), tmp_path).encode("hello the")
    (file,) = tmp_path.iterdir()
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        np.save(file, content)
    assert build(sentencepiece_values(), tmp_path).encode("hello the") == expected
    assert "built again" in caplog.text
    assert build(sentencepiece_values(), tmp_path).encode("hello the") == expected


def test_cache_that_cannot_be_written_is_only_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    tokenizer = build(sentencepiece_values(), tmp_path / "file" / "cache")
    assert tokenizer.encode("the") == [tokenizer.token_id("▁the")]
    assert "cannot be written" in caplog.text


def test_another_vocabulary_has_another_cache_file(tmp_path: Path) -> None:
    build(sentencepiece_values(), tmp_path)
    changed = sentencepiece_values()
    changed["tokenizer.ggml.scores"][260] = -3.5
    build(changed, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_unigram_takes_the_likeliest_cut() -> None:
    tokens = ["<pad>", "</s>", "<unk>", "▁the", "▁th", "e", "▁", "t", "h", "x"]
    values = {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array([0, 0, 0, -9, -2, -3, -2, -4, -4, -4], dtype=np.float32),
        "tokenizer.ggml.token_type": np.array([CONTROL, CONTROL, UNKNOWN] + [NORMAL] * 7),
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 2,
    }
    tokenizer = build(values)
    assert tokenizer.encode("the  the") == [4, 5, 4, 5]
    assert tokenizer.encode_prompt("the") == [4, 5, 1]
    assert tokenizer.decode([4, 5, 3]) == "the the"
    assert 1 not in tokenizer.encode("</s>\ufdd01")


def test_wordpiece_takes_the_longest_match() -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁un", "aff", "able", "▁hello", "a"]
    values = {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([CONTROL, UNKNOWN, CONTROL, CONTROL] + [NORMAL] * 5),
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.unknown_token_id": 1,
    }
    tokenizer = build(values)
    assert tokenizer.encode_prompt("Héllo unaffable") == [2, 7, 4, 5, 6, 3]
    assert tokenizer.decode([2, 7, 4, 5, 6, 3]) == "hello unaffable"
    assert 3 not in tokenizer.encode("[SEP]")


def write_byte_level_folder(folder: Path) -> None:
    values = byte_level_values()
    ids = {text: index for index, text in enumerate(values["tokenizer.ggml.tokens"])}
    merges = [tuple(entry.split(" ")) for entry in values["tokenizer.ggml.merges"]]
    backend = tokenizers.Tokenizer(models.BPE(ids, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    backend.add_tokens(["<think>"])
    backend.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "bos_token": {"content": "<|im_start|>"}, "chat_template": "{{ 1 }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))


def test_tokenizer_json_equals_the_gguf_of_the_same_vocabulary(tmp_path: Path) -> None:
    write_byte_level_folder(tmp_path)
    from_json, from_gguf = tokenizer_from_json(tmp_path), build(byte_level_values())
    for text in ["hello world 12 <think>", "<|im_end|>", "<|im_start|>user\nhello<|im_end|>\n", "é🙂\u0004"]:
        assert from_json.encode(text) == from_gguf.encode(text)
        ids = from_json.encode_with_control_tokens(text)
        assert ids == from_gguf.encode_with_control_tokens(text)
        assert from_json.decode(ids) == from_gguf.decode(ids)
    assert from_json.eos_ids == from_gguf.eos_ids == {0, 2}
    assert from_json.bos_id == 1
    assert not from_json.adds_bos
    assert from_json.chat_template == "{{ 1 }}"
    assert from_json.vocab_size == from_gguf.vocab_size


def test_tokenizer_json_in_sentencepiece_style(tmp_path: Path) -> None:
    values = sentencepiece_values()
    tokens = values["tokenizer.ggml.tokens"]
    merges = [("h", "e"), ("▁", "t"), ("▁t", "he")]
    backend = tokenizers.Tokenizer(
        models.BPE({text: i for i, text in enumerate(tokens)}, merges, byte_fallback=True, unk_token="<unk>")
    )
    backend.normalizer = normalizers.Sequence([])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    backend.save(str(tmp_path / "tokenizer.json"))
    backend.encode_special_tokens = False
    tokenizer = tokenizer_from_json(tmp_path / "tokenizer.json")
    assert tokenizer.encode_prompt("the") == backend.encode("the").ids == [1, tokenizer.token_id("▁the")]
    for text in ["the", "the</s>the", "</s>the é🙂"]:
        expected = backend.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode_with_control_tokens(text) == expected
        assert tokenizer.decode(expected) == backend.decode(expected)
    assert tokenizer.eos_ids == {2}


def test_control_token_takes_the_white_space_it_strips(tmp_path: Path) -> None:
    write_byte_level_folder(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["added_tokens"][2].update(rstrip=True, lstrip=True)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = tokenizer_from_json(tmp_path)
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ["hello \n<|im_end|> \n hello", "<|im_end|>  <|im_end|>", "a <|im_start|> b"]:
        expected = reference.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode_with_control_tokens(text) == expected


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", "{"),
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"eos_token": "<missing>"}'),
        ("generation_config.json", '{"eos_token_id": 9999}'),
        ("generation_config.json", '{"eos_token_id": "two"}'),
    ],
)
def test_broken_folder_is_reported_by_its_file(tmp_path: Path, file: str, content: str | None) -> None:
    write_byte_level_folder(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(TokenizerError) as caught:
        tokenizer_from_json(tmp_path)
    assert caught.value.key == str(tmp_path / file)
    assert "\n" not in str(caught.value)
