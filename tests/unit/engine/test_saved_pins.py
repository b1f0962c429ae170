"""Pinned prefixes that are kept in a folder and come back with the next engine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from engine_factory import Workshop, ask, build_workshop, running

from ferrum.cache.saved_prefix_folder import SavedPrefixFolder
from ferrum.core.errors import InvalidRequest, ResourceExhausted, UnknownPrefix, UnusableSavedPrefix
from ferrum.core.request import TextPrompt
from ferrum.engine.saved_pins import SavedPins
from ferrum.execution.executor import ExecutorCapacity
from ferrum.testing.scripted_executor import ScriptedExecutor

RULES = "the rules of this house, which everybody has to read"
LARGE = ExecutorCapacity(num_blocks=64, block_tokens=4, context_length=128, vocabulary_size=258)


def _workshop() -> Workshop:
    return build_workshop(ScriptedExecutor(capacity=LARGE))


def _saved_pins(workshop: Workshop, folder: Path, most_bytes: int = 10**6) -> SavedPins:
    return SavedPins(workshop.engine.pins, SavedPrefixFolder(folder, most_bytes))


async def _save(folder: Path, *names: str) -> None:
    async with running(_workshop()) as workshop:
        saved = _saved_pins(workshop, folder)
        for used_at, name in enumerate(names, 1):
            await asyncio.to_thread(workshop.engine.pins.pin, name, TextPrompt(name + RULES))
            file = await asyncio.to_thread(saved.save, name)
            assert file.num_bytes == (folder / f"{name}.ferrum-kv").stat().st_size
            assert file.num_bytes == workshop.engine.pins.file_bytes(name)
            await asyncio.to_thread(workshop.engine.pins.unpin, name)
            os.utime(folder / f"{name}.ferrum-kv", (used_at, used_at))


async def test_a_start_restores_every_prefix_that_can_be_used_and_says_of_the_others_why(
    tmp_path: Path,
) -> None:
    await _save(tmp_path, "one", "two", "three")
    damaged = tmp_path / "two.ferrum-kv"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    async with running(_workshop()) as workshop:
        saved = _saved_pins(workshop, tmp_path)
        pinned, refused = await asyncio.to_thread(saved.restore_all)
        assert {pin.name for pin in pinned} == {"one", "three"}
        assert [(name, type(error)) for name, error in refused] == [("two", UnusableSavedPrefix)]
        assert workshop.executor.num_steps == 0
        result = await workshop.engine.infer(ask("a", "one" + RULES))
        assert result.usage.cached_tokens == 52
    # A start is no use: the order in which they would go stays.
    assert [file.name for file in SavedPrefixFolder(tmp_path, 10**6).files()] == ["one", "three", "two"]


async def test_those_used_last_come_back_when_there_is_not_room_for_all(tmp_path: Path) -> None:
    await _save(tmp_path, "one", "two", "three")
    async with running(_workshop()) as workshop:
        # 32 of 64 blocks can be pinned, 13 or 14 each.
        pinned, refused = await asyncio.to_thread(_saved_pins(workshop, tmp_path).restore_all)
    assert [pin.name for pin in pinned] == ["three", "two"]
    assert [(name, type(error)) for name, error in refused] == [("one", ResourceExhausted)]


async def test_what_was_salted_comes_back_under_a_salt_alone(tmp_path: Path) -> None:
    async with running(_workshop()) as workshop:
        saved = _saved_pins(workshop, tmp_path)
        await asyncio.to_thread(workshop.engine.pins.pin, "mine", TextPrompt(RULES), "salt")
        await asyncio.to_thread(saved.save, "mine")
    async with running(_workshop()) as workshop:
        saved = _saved_pins(workshop, tmp_path)
        _, refused = await asyncio.to_thread(saved.restore_all)
        assert [(name, type(error)) for name, error in refused] == [("mine", InvalidRequest)]
        assert (await workshop.engine.infer(ask("a", RULES))).usage.cached_tokens == 0
        pin = await asyncio.to_thread(saved.restore, "mine", "salt")
        assert pin.scope.salt == "salt"


async def test_to_restore_is_to_use_and_to_save_takes_the_room_of_the_unused(tmp_path: Path) -> None:
    await _save(tmp_path, "one", "two")
    size = (tmp_path / "one.ferrum-kv").stat().st_size
    async with running(_workshop()) as workshop:
        saved = _saved_pins(workshop, tmp_path, most_bytes=2 * size + 100)
        await asyncio.to_thread(saved.restore, "one")
        await asyncio.to_thread(workshop.engine.pins.pin, "six", TextPrompt("six" + RULES))
        await asyncio.to_thread(saved.save, "six")
        assert {file.name for file in saved.files()} == {"one", "six"}
        await asyncio.to_thread(saved.remove, "six")
        with pytest.raises(UnknownPrefix, match="no saved prefix named 'six'; there are: one"):
            await asyncio.to_thread(saved.remove, "six")
        with pytest.raises(UnknownPrefix, match="no pinned prefix named 'two'; there are: one, six"):
            await asyncio.to_thread(saved.save, "two")
