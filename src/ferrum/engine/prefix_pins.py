"""PrefixPins: system prompts and sessions that stay in the prefix cache, and on disk if they are saved."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

from ferrum.cache.prefix_cache import PrefixCache
from ferrum.cache.prefix_scope import PrefixScope
from ferrum.cache.saved_prefix import SavedPrefixHeader, SavedPrefixReader, write_saved_prefix
from ferrum.core.errors import (
    EngineClosed,
    InvalidConfig,
    InvalidRequest,
    ResourceExhausted,
    UnusableSavedPrefix,
)
from ferrum.core.request import InferenceRequest, InferenceResult, Prompt, TokenPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.engine.input_processor import InputProcessor
from ferrum.engine.step_loop import StepLoop
from ferrum.scheduling.pinned_prefixes import PinnedPrefix, PinnedPrefixes

Answer = Callable[[InferenceRequest], InferenceResult]
Infer = Callable[[InferenceRequest], Awaitable[InferenceResult]]
# What was computed may be forgotten before it is pinned, when the cache is full and others are quick.
_MOST_TRIES = 3
_ONE_TOKEN = SamplingParams(max_tokens=1, temperature=0.0, seed=0)


class PrefixPins:
    """Whole blocks of named prefixes that are never forgotten. Any thread may call it, and waits its turn;
    a coroutine calls ``pin_beside``, and the others through ``asyncio.to_thread``.

    Whoever asks with a prompt that begins alike (and the same salt) finds them, to the same bits as if they
    were computed again. Without a prefix cache everything raises InvalidConfig.
    """

    def __init__(
        self,
        prefixes: PrefixCache | None,
        steps: StepLoop,
        inputs: InputProcessor,
        answer: Answer,
        infer: Infer,
    ) -> None:
        self._prefixes = prefixes
        self._steps = steps
        self._inputs = inputs
        self._answer = answer
        self._infer = infer
        self._turn = threading.Lock()  # A prefix that is being saved may not be unpinned.
        self._is_closed = False

    @property
    def pins(self) -> tuple[PinnedPrefix, ...]:
        return self._steps.with_pins(lambda pins: pins.pins)

    def get(self, name: str) -> PinnedPrefix:
        """Raises UnknownPrefix."""
        return self._steps.with_pins(lambda pins: pins.get(name))

    def pin(self, name: str, prompt: Prompt, cache_salt: str | None = None) -> PinnedPrefix:
        """Computes what of the prompt is not there yet, and pins its whole blocks.

        Raises InvalidRequest (a name that is taken, a prompt shorter than a block, and what a request may
        raise) and ResourceExhausted.
        """
        pin, prompt_ids = self._read(name, prompt, cache_salt)
        for _ in range(_MOST_TRIES):
            if self._pin_if_cached(pin):
                return pin
            self._answer(_request(TokenPrompt(prompt_ids), cache_salt))
        raise self._no_room_for(pin)

    async def pin_beside(self, name: str, prompt: Prompt, cache_salt: str | None = None) -> PinnedPrefix:
        """``pin`` for asyncio: cancelling the awaiting task ends what is computed for it within a step."""
        pin, prompt_ids = await asyncio.to_thread(self._read, name, prompt, cache_salt)
        for _ in range(_MOST_TRIES):
            if await asyncio.to_thread(self._pin_if_cached, pin):
                return pin
            await self._infer(_request(TokenPrompt(prompt_ids), cache_salt))
        raise self._no_room_for(pin)

    def unpin(self, name: str) -> None:
        """From now on it may be forgotten like all else. Raises UnknownPrefix."""
        with self._turn:
            self._steps.with_pins(lambda pins: pins.unpin(name))

    def close(self) -> None:
        """Unpins everything, for good: the engine ends."""
        with self._turn:
            self._is_closed = True
            self._steps.with_pins(lambda pins: pins.unpin_all())

    def num_bytes(self, pin: PinnedPrefix) -> int:
        """Bytes of the keys and values of a pinned prefix."""
        return self._header(self._required_cache(), pin).kv_bytes

    def file_bytes(self, name: str) -> int:
        """How long the file of a pinned prefix will be. Raises UnknownPrefix."""
        return self._header(self._required_cache(), self.get(name)).file_bytes

    def save(self, name: str, path: Path | str) -> None:
        """Writes a pinned prefix to a file. Raises UnknownPrefix or PrefixNotSaved."""
        cache = self._required_cache()
        with self._turn:
            self._require_open()
            pin, blocks = self._steps.with_pins(lambda pins: (pins.get(name), pins.blocks(name)))
            header = self._header(cache, pin)
            assert header.num_blocks == len(blocks)
            # Nobody writes to whole blocks, so they are read while steps go on.
            write_saved_prefix(Path(path), header, pin.token_ids, map(cache.store.read_block, blocks))

    def restore(self, name: str, path: Path | str, cache_salt: str | None = None) -> PinnedPrefix:
        """Pins a prefix that was saved, of this very model; nothing of it is computed.

        Others find it only when all of the file was read and is as it was written. What was pinned with a
        salt needs one again. Raises InvalidRequest (PrefixPinnedAlready), ResourceExhausted or
        UnusableSavedPrefix.
        """
        cache = self._required_cache()
        with SavedPrefixReader(Path(path)) as saved, self._turn:
            self._require_open()
            self._require_ours(cache, saved, Path(path))
            if saved.header.is_salted and cache_salt is None:
                raise InvalidRequest("is needed: the prefix was not shared with all", "cache_salt")
            pin = PinnedPrefix(name, saved.token_ids, PrefixScope(salt=cache_salt))
            missing = self._steps.with_pins(lambda pins: pins.pin(pin, self._inputs.capacity))
            num_present = saved.header.num_blocks - len(missing)
            try:
                for number, content in enumerate(saved.blocks()):
                    if number >= num_present:
                        cache.store.write_block(missing[number - num_present], content)
            except BaseException:
                self._steps.with_pins(lambda pins: pins.unpin(name))
                raise
            self._steps.with_pins(lambda pins: pins.publish(name))
            return pin

    def _required_cache(self) -> PrefixCache:
        if self._prefixes is None:
            raise InvalidConfig("prefix_cache", "is off, or this executor has none; nothing can be pinned")
        return self._prefixes

    def _header(self, cache: PrefixCache, pin: PinnedPrefix) -> SavedPrefixHeader:
        store, num_blocks = cache.store, len(pin.token_ids) // cache.block_tokens
        is_salted = pin.scope.salt is not None
        return SavedPrefixHeader(
            cache.identity, store.layout_id, cache.block_tokens, store.block_bytes, num_blocks, is_salted
        )

    def _require_open(self) -> None:
        if self._is_closed:
            raise EngineClosed

    def _read(
        self, name: str, prompt: Prompt, cache_salt: str | None
    ) -> tuple[PinnedPrefix, tuple[int, ...]]:
        """What would be pinned, and all tokens of the prompt."""
        size = self._required_cache().block_tokens
        prompt_ids = self._inputs.prepare(_request(prompt, cache_salt)).prompt_ids
        if len(prompt_ids) < size:
            raise InvalidRequest(f"has {len(prompt_ids)} tokens; at least {size} can be pinned", "prompt")
        whole = prompt_ids[: len(prompt_ids) // size * size]
        return PinnedPrefix(name, whole, PrefixScope(salt=cache_salt)), prompt_ids

    def _pin_if_cached(self, pin: PinnedPrefix) -> bool:
        def look(pins: PinnedPrefixes) -> bool:
            pins.require_new(pin.name)
            is_cached = pins.num_cached(pin.scope, pin.token_ids) == len(pin.token_ids)
            return is_cached and pins.pin(pin, self._inputs.capacity) == ()

        with self._turn:
            self._require_open()
            return self._steps.with_pins(look)

    def _no_room_for(self, pin: PinnedPrefix) -> ResourceExhausted:
        num_blocks = len(pin.token_ids) // self._required_cache().block_tokens
        return ResourceExhausted("KV blocks", num_blocks, 0, "pin it when fewer requests run")

    def _require_ours(self, cache: PrefixCache, saved: SavedPrefixReader, path: Path) -> None:
        header, store = saved.header, cache.store
        if header.identity != cache.identity:
            raise UnusableSavedPrefix(
                str(path), "was saved by another model, or with another context length or --kv-dtype"
            )
        ours = (store.layout_id, cache.block_tokens, store.block_bytes)
        if (header.layout_id, header.block_tokens, header.block_bytes) != ours:
            raise UnusableSavedPrefix(str(path), "was saved by another version of Ferrum; save it again")


def _request(prompt: Prompt, cache_salt: str | None) -> InferenceRequest:
    return InferenceRequest(f"pin-{uuid.uuid4().hex}", prompt, _ONE_TOKEN, cache_salt)
