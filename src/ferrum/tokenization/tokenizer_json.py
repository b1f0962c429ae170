"""A Tokenizer from a Hugging Face tokenizer.json and the configuration files beside it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from ferrum.core.errors import TokenizerError
from ferrum.tokenization.byte_alphabet import bytes_of_token
from ferrum.tokenization.control_tokens import ControlToken, ControlTokens
from ferrum.tokenization.special_tokens import SpecialTokens, end_of_turn_ids, is_end_of_turn
from ferrum.tokenization.text_encoder import TextEncoder
from ferrum.tokenization.tokenizer import Tokenizer, TokenizerParts

_SPACE = "▁"
_CONTINUATION = "##"


def tokenizer_from_json(path: Path) -> Tokenizer:
    """Builds the tokenizer from a tokenizer.json or the folder that holds it.

    Reads tokenizer_config.json (named tokens, chat template), chat_template.jinja and generation_config.json
    (end tokens; else config.json's) in the same folder where they exist. Raises TokenizerError naming the
    file.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    backend = _load_backend(file)
    # Special tokens in a text are then never recognised: only encode_with_control_tokens looks for them.
    backend.encode_special_tokens = True
    config = _read_json(file.parent / "tokenizer_config.json")
    tokens = {token_id: text for text, token_id in backend.get_vocab(with_added_tokens=True).items()}
    decoder = _read_decoder(backend, file)
    controls = {
        added.content: ControlToken(added.content, token_id, added.lstrip, added.rstrip)
        for token_id, added in backend.get_added_tokens_decoder().items()
        if added.special
    }
    added_ids = frozenset(backend.get_added_tokens_decoder())
    return Tokenizer(
        TokenizerParts(
            encoder=TextEncoder(at_start=backend, after_token=_without_first_prefix(backend)),
            bytes_of=partial(_bytes_of, tokens, added_ids, _piece_bytes(decoder, file)),
            control_tokens=ControlTokens(controls),
            control_ids=frozenset(control.token_id for control in controls.values()),
            special=_read_special(backend, config, file.parent, controls, max(tokens) + 1),
            id_of=backend.token_to_id,
            vocab_size=max(tokens) + 1,
            has_dummy_prefix=_strips_first_space(decoder),
            bos_keeps_start=False,
            chat_template=_read_template(config, file.parent),
            unused_ids=frozenset(range(max(tokens)))
            - {token_id for token_id, text in tokens.items() if text},
        )
    )


def _load_backend(file: Path) -> tokenizers.Tokenizer:
    if not file.is_file():
        raise TokenizerError(str(file), "there is no such file")
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # The library raises nothing narrower.
        raise TokenizerError(str(file), f"cannot be read: {error}") from None
    backend.no_truncation()
    backend.no_padding()
    if not backend.get_vocab_size():
        raise TokenizerError(str(file), "the vocabulary is empty")
    _make_ends_special(backend)
    return backend


def _make_ends_special(backend: tokenizers.Tokenizer) -> None:
    """Some files forget to: answers would not end, and a user's text could write the end of a turn."""
    forgotten = [
        added
        for added in backend.get_added_tokens_decoder().values()
        if not added.special and is_end_of_turn(added.content)
    ]
    for added in forgotten:
        added.special = True
    backend.add_special_tokens(forgotten)


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TokenizerError(str(file), f"cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise TokenizerError(str(file), "must hold a JSON object")
    return content


def _without_first_prefix(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same model for text after a token, where a prefix of the "first" scheme is not written."""
    if "first" not in _prepend_schemes(backend.pre_tokenizer):
        return backend
    after_token = tokenizers.Tokenizer(backend.model)
    if backend.normalizer is not None:
        after_token.normalizer = backend.normalizer
    after_token.pre_tokenizer = copy.deepcopy(backend.pre_tokenizer)
    for part in _parts_of(after_token.pre_tokenizer):
        if isinstance(part, pre_tokenizers.Metaspace) and part.prepend_scheme == "first":
            part.prepend_scheme = "never"
    after_token.add_tokens(
        [added for added in backend.get_added_tokens_decoder().values() if not added.special]
    )
    return after_token


def _prepend_schemes(pre_tokenizer: object) -> list[str]:
    parts = _parts_of(pre_tokenizer)
    return [part.prepend_scheme for part in parts if isinstance(part, pre_tokenizers.Metaspace)]


def _parts_of(pre_tokenizer: object) -> list[object]:
    if isinstance(pre_tokenizer, pre_tokenizers.Sequence):
        return [
            pre_tokenizer[index]
            for index in range(len(json.loads(pre_tokenizer.__getstate__())["pretokenizers"]))
        ]
    return [pre_tokenizer]


def _read_decoder(backend: tokenizers.Tokenizer, file: Path) -> list[dict[str, Any]]:
    """The decoder's steps as the file describes them."""
    if backend.decoder is None:
        raise TokenizerError(str(file), "it has no decoder, so the bytes of its tokens are unknown")
    state = json.loads(backend.decoder.__getstate__())
    return list(state["decoders"]) if state["type"] == "Sequence" else [state]


def _piece_bytes(decoder: list[dict[str, Any]], file: Path) -> Callable[[str], bytes]:
    kinds = {step["type"] for step in decoder}
    if "ByteLevel" in kinds:
        return bytes_of_token
    if kinds & {"ByteFallback", "Metaspace"}:
        return partial(_sentencepiece_bytes, has_byte_tokens="ByteFallback" in kinds)
    if "WordPiece" in kinds:
        return _wordpiece_bytes
    raise TokenizerError(str(file), f"decoder {', '.join(sorted(kinds))} is not supported")


def _sentencepiece_bytes(text: str, has_byte_tokens: bool) -> bytes:
    if has_byte_tokens and len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        try:
            return bytes([int(text[3:5], 16)])
        except ValueError:
            pass
    return text.replace(_SPACE, " ").encode()


def _wordpiece_bytes(text: str) -> bytes:
    return text[2:].encode() if text.startswith(_CONTINUATION) else f" {text}".encode()


def _bytes_of(
    tokens: Mapping[int, str], added_ids: frozenset[int], piece_bytes: Callable[[str], bytes], token_id: int
) -> bytes:
    text = tokens.get(token_id, "")
    return text.encode() if token_id in added_ids or not text else piece_bytes(text)


def _strips_first_space(decoder: list[dict[str, Any]]) -> bool:
    return any(
        (step["type"] == "Strip" and step["content"] == " " and step["start"] > 0)
        or (step["type"] == "Metaspace" and step["prepend_scheme"] != "never")
        or step["type"] == "WordPiece"
        for step in decoder
    )


def _read_special(
    backend: tokenizers.Tokenizer,
    config: Mapping[str, Any],
    folder: Path,
    controls: Mapping[str, ControlToken],
    vocab_size: int,
) -> SpecialTokens:
    named = {name: _named_id(backend, config, folder, name) for name in ("bos", "eos", "unk", "pad")}
    prefix, suffix = _around_prompt(backend)
    bos = named["bos"]
    if bos is None and prefix and prefix[0] in {control.token_id for control in controls.values()}:
        bos = prefix[0]
    # Llama's tokenizer classes let this setting overrule the post-processor of tokenizer.json.
    adds_bos = config.get("add_bos_token")
    if adds_bos is True and bos is not None and bos not in prefix:
        prefix = (bos, *prefix)
    elif adds_bos is False:
        prefix = tuple(token_id for token_id in prefix if token_id != bos)
    ends = _generation_ends(folder, vocab_size) | end_of_turn_ids(
        {text: control.token_id for text, control in controls.items()}
    )
    if named["eos"] is not None:
        ends |= {named["eos"]}
    texts = (_named_text(config, name) for name in ("sep", "cls", "mask"))
    others = (backend.token_to_id(text) for text in texts if text is not None)
    other_ids = frozenset(token_id for token_id in others if token_id is not None)
    return SpecialTokens(bos, named["eos"], named["unk"], named["pad"], ends, prefix, suffix, other_ids)


def _named_id(
    backend: tokenizers.Tokenizer, config: Mapping[str, Any], folder: Path, name: str
) -> int | None:
    value = config.get(f"{name}_token")
    if value is None or (isinstance(value, dict) and value.get("content") is None):
        return None
    text = _named_text(config, name)
    token_id = backend.token_to_id(text) if text is not None else None
    if token_id is None:
        raise TokenizerError(
            str(folder / "tokenizer_config.json"), f"{name}_token is {value!r}, which the vocabulary lacks"
        )
    return token_id


def _named_text(config: Mapping[str, Any], name: str) -> str | None:
    """A token's text as tokenizer_config.json names it; None where it does not, or names something else."""
    value = config.get(f"{name}_token")
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _around_prompt(backend: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the post-processor writes before and after a text."""
    plain = backend.encode("a", add_special_tokens=False).ids
    full = backend.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return tuple(full[:start]), tuple(full[start + len(plain) :])
    return (), ()


def _generation_ends(folder: Path, vocab_size: int) -> frozenset[int]:
    file = folder / "generation_config.json"
    ids = _listed(_read_json(file).get("eos_token_id"))
    if not ids:
        # As transformers does. Many a config.json names an id that its model does not have.
        known = _listed(_read_json(folder / "config.json").get("eos_token_id"))
        return frozenset(token_id for token_id in known if token_id in range(vocab_size))
    for token_id in ids:
        if not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
            raise TokenizerError(
                str(file), f"eos_token_id {token_id!r} is not an id of the vocabulary's {vocab_size} tokens"
            )
    return frozenset(ids)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _read_template(config: Mapping[str, Any], folder: Path) -> str | None:
    """chat_template.jinja before the configuration's; of several named templates, the one named "default"."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        template = {entry.get("name"): entry.get("template") for entry in template}.get("default")
    return template if isinstance(template, str) else None
