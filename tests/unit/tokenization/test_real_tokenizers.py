"""Token ids of the two real models against tokenizers written from the algorithms' definitions."""

import threading
import time
from pathlib import Path

import pytest

from ferrum.tokenization.byte_alphabet import CHARACTER_OF_BYTE
from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.tokenization.stream_decoder import StreamDecoder
from ferrum.tokenization.tokenizer import Tokenizer
from ferrum.weights.gguf_reader import read_gguf
from ferrum.weights.metadata import Metadata
from reference_tokenizers import (
    cut_out_longest,
    merge_by_rank,
    merge_by_score,
    split_gpt2_words,
    split_single_digits,
)
from text_corpus import corpus

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def smollm2_metadata(smollm2_path: Path) -> Metadata:
    return read_gguf(smollm2_path).metadata


@pytest.fixture(scope="module")
def gemma3_metadata(gemma3_path: Path) -> Metadata:
    return read_gguf(gemma3_path).metadata


@pytest.fixture(scope="module")
def gemma3_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


@pytest.fixture(scope="module")
def smollm2(smollm2_metadata: Metadata) -> Tokenizer:
    return tokenizer_from_gguf(smollm2_metadata, None)


@pytest.fixture(scope="module")
def gemma3(gemma3_metadata: Metadata, gemma3_cache: Path) -> Tokenizer:
    return tokenizer_from_gguf(gemma3_metadata, gemma3_cache)


def test_smollm2_ids_equal_byte_pair_encoding_by_definition(
    smollm2: Tokenizer, smollm2_metadata: Metadata
) -> None:
    merges = smollm2_metadata.get_str_array("tokenizer.ggml.merges")
    ranks = {tuple(entry.split(" ")): rank for rank, entry in enumerate(merges)}
    ids = {text: i for i, text in enumerate(smollm2_metadata.get_str_array("tokenizer.ggml.tokens"))}
    wrong = []
    for text in corpus():
        expected = []
        for part in split_single_digits(text):
            for word in split_gpt2_words(part):
                symbols = merge_by_rank([CHARACTER_OF_BYTE[byte] for byte in word.encode()], ranks)
                # This vocabulary lacks 21 bytes; the model's own tokenizer drops them too.
                expected += [ids[symbol] for symbol in symbols if symbol in ids]
        if smollm2.encode(text) != expected:
            wrong.append(text)
    assert not wrong


def test_gemma3_ids_equal_sentencepiece_by_definition(gemma3: Tokenizer, gemma3_metadata: Metadata) -> None:
    tokens = gemma3_metadata.get_str_array("tokenizer.ggml.tokens")
    types = gemma3_metadata.get_int_array("tokenizer.ggml.token_type").tolist()
    scores = gemma3_metadata.get_float_array("tokenizer.ggml.scores").tolist()
    normal = {text: score for text, kind, score in zip(tokens, types, scores, strict=True) if kind == 1}
    typed = enumerate(zip(tokens, types, strict=True))
    ids = {text.replace(" ", "▁"): i for i, (text, kind) in typed if kind in (1, 4)}
    whole = [text.replace(" ", "▁") for text, kind in zip(tokens, types, strict=True) if kind == 4]
    byte_ids = [tokens.index(f"<0x{byte:02X}>") for byte in range(256)]
    wrong = []
    for text in corpus():
        expected = []
        for piece, is_whole in cut_out_longest(text.replace(" ", "▁"), whole):
            symbols = [piece] if is_whole else merge_by_score(list(piece), normal)
            for symbol in symbols:
                expected += [ids[symbol]] if symbol in ids else [byte_ids[byte] for byte in symbol.encode()]
        if gemma3.encode(text) != expected:
            wrong.append(text)
    assert not wrong


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_decoding_gives_the_text_back(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    # Gemma writes a space as U+2581 and so cannot tell that character from a space; SmolLM2 lacks some bytes.
    texts = [text for text in corpus() if "▁" not in text and "\u0000" not in text and "𓀀" not in text]
    for text in texts:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        decoder = StreamDecoder(tokenizer)
        assert "".join(map(decoder.push, ids)) + decoder.flush() == text
        assert tokenizer.control_ids.isdisjoint(ids)


def test_end_tokens_are_found_from_every_source(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    assert smollm2.eos_ids == {smollm2.token_id("<|im_end|>"), smollm2.token_id("<|endoftext|>")}
    assert gemma3.eos_ids == {gemma3.token_id("<eos>"), gemma3.token_id("<end_of_turn>")}


def test_prompts_begin_as_the_models_say(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    assert smollm2.encode_prompt("a") == smollm2.encode("a")
    assert gemma3.encode_prompt("a") == [gemma3.token_id("<bos>"), *gemma3.encode("a")]


def test_large_vocabulary_loads_from_its_cache(
    gemma3: Tokenizer, gemma3_metadata: Metadata, gemma3_cache: Path
) -> None:
    begin = time.perf_counter()
    again = tokenizer_from_gguf(gemma3_metadata, gemma3_cache)
    seconds = time.perf_counter() - begin
    assert len(list(gemma3_cache.iterdir())) == 1
    assert again.encode("The cached tokenizer cuts alike. 🙂") == gemma3.encode(
        "The cached tokenizer cuts alike. 🙂"
    )
    # 0.5 s on the machine it was written on; the bound only catches building it all over again, or worse.
    assert seconds < 5.0


def test_a_long_text_does_not_stop_other_threads(smollm2: Tokenizer) -> None:
    """The engine's thread plans steps meanwhile; it must not wait for the interpreter."""
    text = "the quick brown fox jumps over the lazy dog\n" * 8000
    is_over = threading.Event()
    num_turns = 0

    def work() -> None:
        nonlocal num_turns
        while not is_over.is_set():
            num_turns += 1
            time.sleep(0.002)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        while not num_turns:
            time.sleep(0.001)
        before = num_turns
        began = time.perf_counter()
        ids = smollm2.encode(text)
        seconds, turns = time.perf_counter() - began, num_turns - before
    finally:
        is_over.set()
        worker.join()
    assert turns > 5, f"{turns} in {seconds:.3f} s"
    assert ids == [token_id for line in text.splitlines(keepends=True) for token_id in smollm2.encode(line)]
