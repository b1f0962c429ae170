"""What ends an answer: the model's end tokens, and what the caller names."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from ferrum.core.errors import InvalidRequest
from ferrum.core.sampling_params import SamplingParams
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.tokenization.stop_rules import StopRules, resolve_stops
from ferrum.tokenization.tokenizer_json import tokenizer_from_json
from tiny_vocabularies import USER_DEFINED, byte_level_values, metadata

EOS, BOS = ByteTokenizer.EOS_ID, ByteTokenizer.BOS_ID


def resolve(**sampling: object) -> StopRules:
    return resolve_stops(SamplingParams(**sampling), ByteTokenizer(), vocabulary_size=258)


def test_without_wishes_the_models_end_tokens_end_an_answer() -> None:
    rules = resolve()
    assert (rules.end_ids, rules.stop_ids, rules.texts) == ({EOS}, {}, ())


def test_ignored_end_tokens_end_nothing_but_the_callers_own_do() -> None:
    assert resolve(ignore_eos=True).terminal_ids == frozenset()
    assert resolve(ignore_eos=True, stop_token_ids=(7,)).terminal_ids == {7}


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_an_id_that_is_both_is_the_callers(ignore_eos: bool) -> None:
    rules = resolve(stop_token_ids=(EOS, 7), ignore_eos=ignore_eos)
    assert rules.stop_ids == {EOS: EOS, 7: 7}
    assert rules.end_ids == frozenset()
    assert rules.terminal_ids == {EOS, 7}


def test_a_stop_string_that_spells_a_control_token_means_the_token() -> None:
    rules = resolve(stop=("<bos>", "<eos>", "x"))
    assert rules.stop_ids == {BOS: "<bos>", EOS: "<eos>"}
    assert rules.end_ids == frozenset()
    assert rules.texts == ("<bos>", "<eos>", "x")


def test_a_stop_string_of_one_ordinary_token_is_found_as_text_alone() -> None:
    assert resolve(stop=("x",)).stop_ids == {}


@pytest.mark.parametrize("token_id", [258, 10**6])
def test_a_stop_token_outside_the_vocabulary_is_refused(token_id: int) -> None:
    with pytest.raises(InvalidRequest, match=r"stop_token_ids: .*outside the vocabulary \(0 to 257\)"):
        resolve(stop_token_ids=(3, token_id))


@pytest.mark.parametrize("ids", [(-1,), (1.5,), ("7",), (True,), "7", 7, tuple(range(257))])
def test_stop_tokens_that_are_none_are_refused_by_name(ids: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(stop_token_ids=ids)
    assert caught.value.param == "stop_token_ids"


@pytest.mark.parametrize("name", ["ignore_eos", "include_stop_str_in_output", "skip_special_tokens"])
@pytest.mark.parametrize("value", [1, "true", None])
def test_a_switch_is_true_or_false(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name


def test_the_end_of_a_turn_counts_when_a_file_calls_it_user_defined() -> None:
    """Many a conversion does; a model that ends its turns so would otherwise never end."""
    values = byte_level_values()
    types = values["tokenizer.ggml.token_type"].copy()
    end = values["tokenizer.ggml.tokens"].index("<|im_end|>")
    types[end] = USER_DEFINED
    tokenizer = tokenizer_from_gguf(metadata({**values, "tokenizer.ggml.token_type": types}), None)
    assert end in tokenizer.eos_ids
    assert end not in tokenizer.encode("hello<|im_end|>")


def test_the_end_of_a_turn_counts_when_a_tokenizer_json_does_not_call_it_special(tmp_path: Path) -> None:
    backend = Tokenizer(BPE({character: index for index, character in enumerate(" <|im_end>abc")}, []))
    backend.pre_tokenizer, backend.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    backend.add_tokens([AddedToken("<|im_end|>", special=False), AddedToken("<b>", special=False)])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizer_from_json(tmp_path)
    end = tokenizer.token_id("<|im_end|>")
    assert tokenizer.eos_ids == {end}
    assert end in tokenizer.control_ids
    assert end not in tokenizer.encode("a<|im_end|>b")
    assert tokenizer.encode_with_control_tokens("a<|im_end|>")[-1] == end
    assert tokenizer.token_id("<b>") in tokenizer.encode("a<b>")


def test_a_user_defined_html_tag_is_no_end_of_a_text() -> None:
    """Gemma's vocabulary has "</s>" as the tag that strikes text out; the end has another name there."""
    values = byte_level_values()
    tokens = [*values["tokenizer.ggml.tokens"], "</s>"]
    types = np.append(values["tokenizer.ggml.token_type"], USER_DEFINED)
    changed = {**values, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    assert tokenizer_from_gguf(metadata(changed), None).eos_ids == {0, 2}
