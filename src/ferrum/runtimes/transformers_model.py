"""A CausalModel that Hugging Face transformers computes, on the CPU.

The only file that imports torch and transformers, and only when a model is asked for. What they are given and
give back is theirs, so its types are not checked here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import InvalidConfig, UnsupportedModel
from ferrum.runtimes.causal_model import CacheObject

# What models call their cache, in arguments and results, newest name first.
_CACHE_NAMES: Final = ("cache", "past_key_values", "cache_params", "state")
_LAST_ROW: Final = "logits_to_keep"

_FLOAT_BYTES: Final = 4
# Rows of the hidden size that a layer has at once: residual, norm, queries, keys, values and a wide MLP.
_ACTIVATIONS: Final = 24
_USUAL_HIDDEN_SIZE: Final = 4096


class TransformersCache:
    """Holds whatever a model returns as its cache; empty before the first pass."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None


class TransformersModel:
    """A causal LM from a local folder with config.json and safetensors files, in the precision of its files.

    Never fetches anything and runs no code out of the folder. ``num_threads`` holds for all of torch in this
    process. Raises InvalidConfig when transformers is not installed, UnsupportedModel when it cannot load the
    folder.
    """

    def __init__(self, folder: Path, num_threads: int) -> None:
        self._torch, transformers = _import_frameworks()
        self._torch.set_num_threads(num_threads)
        transformers.utils.logging.disable_progress_bar()
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype="auto", local_files_only=True, use_safetensors=True, trust_remote_code=False
            )
        except MemoryError:
            raise
        except Exception as error:  # The library raises whatever its parts raise.
            reason = str(error).strip().split("\n")[0]
            raise UnsupportedModel(
                str(folder), f"transformers cannot load it: {type(error).__name__}: {reason}"
            ) from error
        self._model: Any = model.eval()
        parameters = inspect.signature(model.forward).parameters
        self._options: dict[str, Any] = {"use_cache": True}
        if _LAST_ROW in parameters:
            self._options[_LAST_ROW] = 1
        config = model.config.get_text_config()
        self.context_length = _positive(getattr(config, "max_position_embeddings", None))
        self._hidden_size = _positive(getattr(config, "hidden_size", None)) or _USUAL_HIDDEN_SIZE
        self.arithmetic = (
            f"transformers {transformers.__version__}, torch {self._torch.__version__}, "
            f"{str(model.dtype).removeprefix('torch.')}"
        )
        self._cache_name: str | None = None
        self.vocabulary_size = len(self.forward([0], self.new_cache()))

    def new_cache(self) -> CacheObject:
        return TransformersCache()

    def forward(self, token_ids: Sequence[int], cache: CacheObject) -> FloatArray:
        assert isinstance(cache, TransformersCache)
        given = {} if cache.value is None else {self._name_in(cache.value): cache.value}
        with self._torch.inference_mode():
            ids = self._torch.tensor([list(token_ids)])
            result = self._model(input_ids=ids, **given, **self._options)
            logits = result.logits[0, -1].float().numpy()
        self._take_cache(result, cache)
        return np.asarray(logits, np.float32)

    def cache_bytes(self, cache: CacheObject) -> int:
        assert isinstance(cache, TransformersCache)
        sizes = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for tensor in _tensors_in(cache.value, self._torch.Tensor, set())
        }
        return sum(sizes.values())

    def pass_bytes(self, num_tokens: int) -> int:
        """About what a forward pass takes while it runs: a layer's activations, and the logits."""
        rows = 1 if _LAST_ROW in self._options else num_tokens
        return _FLOAT_BYTES * (num_tokens * self._hidden_size * _ACTIVATIONS + rows * self.vocabulary_size)

    def close(self) -> None:
        self._model = None

    def _take_cache(self, result: Any, cache: TransformersCache) -> None:
        """The cache of the pass: most models return the object they were given, some a new one."""
        names = [name for name in _CACHE_NAMES if name in result and result[name] is not None]
        if not names:
            raise UnsupportedModel(
                type(self._model).__name__,
                "its forward pass returns no cache, so nothing can go on",
            )
        self._cache_name = names[0]
        cache.value = result[names[0]]

    def _name_in(self, value: Any) -> str:
        assert self._cache_name is not None, f"a cache before the first pass: {value!r}"
        return self._cache_name


def _import_frameworks() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise InvalidConfig(
            "executor",
            f"'transformers' needs more packages ({error}): pip install 'ferrum-engine[transformers]'",
        ) from error
    return torch, transformers


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _tensors_in(value: Any, kind: type, seen: set[int]) -> Iterator[Any]:
    """Every tensor that a cache object refers to, however it is built."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, kind):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors_in(each, kind, seen)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors_in(each, kind, seen)
    elif hasattr(value, "__dict__"):
        yield from _tensors_in(vars(value), kind, seen)
