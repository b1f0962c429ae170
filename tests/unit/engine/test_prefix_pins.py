"""Prefixes that are pinned, saved and restored."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_factory import Workshop, ask, build_workshop, running

from ferrum.core.config import EngineConfig
from ferrum.core.errors import (
    EngineClosed,
    InvalidConfig,
    InvalidRequest,
    ResourceExhausted,
    UnknownComponent,
    UnusableSavedPrefix,
)
from ferrum.core.request import TextPrompt, TokenPrompt
from ferrum.execution.executor import ExecutorCapacity
from ferrum.testing.scripted_executor import ScriptedExecutor

RULES = "the rules of this house, which everybody has to read"
LARGE = ExecutorCapacity(num_blocks=64, block_tokens=4, context_length=128, vocabulary_size=258)


def _workshop() -> Workshop:
    return build_workshop(ScriptedExecutor(capacity=LARGE, keeps_plans=True))


async def _flood(workshop: Workshop) -> None:
    """Enough other prompts that nothing stays in the cache that is not pinned."""
    for number in range(8):
        letter = chr(ord("A") + number)
        await workshop.engine.infer(ask(f"flood {number}", letter * 100, max_tokens=20))


async def test_a_pinned_prefix_outlives_a_flood_and_another_does_not() -> None:
    async with running(_workshop()) as workshop:
        pin = await asyncio.to_thread(workshop.engine.pins.pin, "rules", TextPrompt(RULES))
        await workshop.engine.infer(ask("other", "another text, as long as the rules are, is not pinned"))
        assert pin.token_ids == tuple(RULES.encode())
        assert workshop.engine.status().prefix_cache.pinned_blocks == len(RULES) // 4
        await _flood(workshop)
        asked = await workshop.engine.infer(ask("a", RULES + " well?"))
        missed = await workshop.engine.infer(ask("b", "another text, as long as the rules are, is not there"))
    assert (asked.usage.cached_tokens, missed.usage.cached_tokens) == (len(RULES), 0)


async def test_an_unpinned_prefix_can_be_forgotten() -> None:
    async with running(_workshop()) as workshop:
        await asyncio.to_thread(workshop.engine.pins.pin, "rules", TextPrompt(RULES))
        await asyncio.to_thread(workshop.engine.pins.unpin, "rules")
        assert workshop.engine.pins.pins == ()
        first = await workshop.engine.infer(ask("a", RULES + " well?"))
        await _flood(workshop)
        second = await workshop.engine.infer(ask("b", RULES + " well?"))
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (len(RULES), 0)


async def test_what_is_cached_already_is_pinned_without_a_step() -> None:
    async with running(_workshop()) as workshop:
        await workshop.engine.infer(ask("a", RULES))
        num_steps = workshop.executor.num_steps
        await asyncio.to_thread(workshop.engine.pins.pin, "rules", TextPrompt(RULES))
        assert workshop.executor.num_steps == num_steps


async def test_a_saved_prefix_is_restored_by_another_engine_and_nothing_is_computed(tmp_path: Path) -> None:
    path = tmp_path / "rules.kv"
    async with running(_workshop()) as workshop:
        await asyncio.to_thread(workshop.engine.pins.pin, "rules", TextPrompt(RULES))
        await asyncio.to_thread(workshop.engine.pins.save, "rules", path)
        expected = await workshop.engine.infer(ask("a", RULES + " well?"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["rules.kv"]
    async with running(_workshop()) as workshop:
        pin = await asyncio.to_thread(workshop.engine.pins.restore, "rules", path)
        assert pin.token_ids == tuple(RULES.encode())
        assert workshop.executor.num_steps == 0
        await _flood(workshop)
        result = await workshop.engine.infer(ask("a", RULES + " well?"))
    assert result.usage.cached_tokens == len(RULES)
    assert result.token_ids == expected.token_ids


async def test_restoring_what_is_partly_there_shares_it(tmp_path: Path) -> None:
    path = tmp_path / "rules.kv"
    async with running(_workshop()) as workshop:
        await asyncio.to_thread(workshop.engine.pins.pin, "rules", TextPrompt(RULES))
        await asyncio.to_thread(workshop.engine.pins.save, "rules", path)
    async with running(_workshop()) as workshop:
        await workshop.engine.infer(ask("a", RULES[:20]))
        await asyncio.to_thread(workshop.engine.pins.restore, "rules", path)
        await asyncio.to_thread(workshop.engine.pins.restore, "again", path)
        assert workshop.engine.status().prefix_cache.pinned_blocks == len(RULES) // 4
        assert (await workshop.engine.infer(ask("b", RULES))).usage.cached_tokens == len(RULES) - 1


async def test_a_salted_prefix_is_found_under_its_salt_alone(tmp_path: Path) -> None:
    path = tmp_path / "rules.kv"
    async with running(_workshop()) as workshop:
        pins = workshop.engine.pins
        await asyncio.to_thread(pins.pin, "mine", TextPrompt(RULES), "salt")
        assert (await workshop.engine.infer(ask("a", RULES + "!"))).usage.cached_tokens == 0
        await asyncio.to_thread(pins.save, "mine", path)
        with pytest.raises(InvalidRequest, match="cache_salt: is needed"):
            await asyncio.to_thread(pins.restore, "other", path)
        await asyncio.to_thread(pins.restore, "other", path, "other salt")
        assert workshop.engine.status().prefix_cache.pinned_blocks == 2 * len(RULES) // 4


@pytest.fixture
async def saved(tmp_path: Path) -> Path:
    path = tmp_path / "rules.kv"
    async with running(_workshop()) as workshop:
        await asyncio.to_thread(workshop.engine.pins.pin, "rules", TextPrompt(RULES))
        await asyncio.to_thread(workshop.engine.pins.save, "rules", path)
    return path


async def _refused(path: Path, workshop: Workshop | None = None) -> str:
    """What the refusal says; nothing may be found or held afterwards."""
    async with running(workshop or _workshop()) as workshop:
        with pytest.raises(UnusableSavedPrefix) as caught:
            await asyncio.to_thread(workshop.engine.pins.restore, "rules", path)
        assert caught.value.path == str(path)
        assert workshop.engine.pins.pins == ()
        assert workshop.cache.num_used_blocks == 0
        assert (await workshop.engine.infer(ask("a", RULES))).usage.cached_tokens == 0
    return str(caught.value)


@pytest.mark.parametrize("place", [0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.999])
async def test_a_file_with_one_bit_turned_is_refused(saved: Path, place: float) -> None:
    content = bytearray(saved.read_bytes())
    content[int(len(content) * place)] ^= 0x40
    saved.write_bytes(content)
    await _refused(saved)


@pytest.mark.parametrize("num_bytes", [0, 5, 12, 19, 100, 500, -33, -1])
async def test_a_file_that_is_cut_off_is_refused(saved: Path, num_bytes: int) -> None:
    saved.write_bytes(saved.read_bytes()[:num_bytes])
    await _refused(saved)


async def test_a_file_with_something_after_its_end_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes() + b"x")
    assert "damaged" in await _refused(saved)


async def test_a_file_of_another_model_is_refused(saved: Path) -> None:
    workshop = _workshop()
    assert workshop.cache.prefix_cache is not None
    workshop.cache.prefix_cache.identity = "another"
    assert "another model" in await _refused(saved, workshop)


async def test_a_file_of_another_layout_is_refused(saved: Path) -> None:
    workshop = _workshop()
    assert workshop.cache.prefix_cache is not None
    workshop.cache.prefix_cache.store.layout_id = "another"
    assert "another version" in await _refused(saved, workshop)


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "No such file" in await _refused(tmp_path / "absent.kv")
    (tmp_path / "note.txt").write_text("ferrum? no")
    assert "no saved prefix" in await _refused(tmp_path / "note.txt")


async def test_a_folder_that_is_not_there_is_named() -> None:
    async with running(_workshop()) as workshop:
        await asyncio.to_thread(workshop.engine.pins.pin, "rules", TextPrompt(RULES))
        with pytest.raises(UnusableSavedPrefix, match="cannot be written"):
            await asyncio.to_thread(workshop.engine.pins.save, "rules", Path("/nowhere/at/all.kv"))


async def test_wrong_calls_are_refused_by_name() -> None:
    async with running(_workshop()) as workshop:
        pins = workshop.engine.pins
        await asyncio.to_thread(pins.pin, "rules", TextPrompt(RULES))
        with pytest.raises(InvalidRequest, match="'rules' is pinned already"):
            await asyncio.to_thread(pins.pin, "rules", TextPrompt(RULES))
        with pytest.raises(InvalidRequest, match="has 3 tokens; at least 4"):
            await asyncio.to_thread(pins.pin, "short", TextPrompt("abc"))
        for act in (pins.unpin, lambda name: pins.save(name, "x")):
            with pytest.raises(UnknownComponent, match="no pinned prefix named 'other'; there are: rules"):
                await asyncio.to_thread(act, "other")
    with pytest.raises(EngineClosed):
        pins.pin("late", TextPrompt(RULES))
    async with running(build_workshop(config=EngineConfig(prefix_cache=False))) as workshop:
        with pytest.raises(InvalidConfig, match="prefix_cache"):
            await asyncio.to_thread(workshop.engine.pins.pin, "rules", TextPrompt(RULES))


async def test_pins_leave_room_for_the_longest_request() -> None:
    async with running(_workshop()) as workshop:
        pins = workshop.engine.pins
        # 64 blocks, of which a request may need 32.
        for number in range(2):
            prompt = TokenPrompt(tuple([number] * 64))
            await asyncio.to_thread(pins.pin, f"p{number}", prompt)
        with pytest.raises(ResourceExhausted, match="33 needed, 32 available"):
            await asyncio.to_thread(pins.pin, "p2", TokenPrompt((9, 9, 9, 9)))
        # The same blocks again take no more room.
        await asyncio.to_thread(pins.pin, "p3", TokenPrompt(tuple([1] * 32)))
        result = await workshop.engine.infer(ask("long", "x" * 100, max_tokens=28))
        assert result.usage.completion_tokens == 28


async def test_a_pin_beside_running_requests_takes_nothing_they_were_promised() -> None:
    executor = ScriptedExecutor(capacity=LARGE, latency_s=0.002)
    async with running(build_workshop(executor)) as workshop:
        asks = [ask(f"r{n}", chr(65 + n) * 40, max_tokens=60, ignore_eos=True) for n in range(2)]
        answers = [asyncio.create_task(workshop.engine.infer(each)) for each in asks]
        await asyncio.sleep(0.02)
        # 14 of 64 blocks are not promised; the prompt takes 13, one of its tokens the next.
        pin = await asyncio.to_thread(workshop.engine.pins.pin, "rules", TextPrompt(RULES))
        assert len(pin.token_ids) == len(RULES)
        for answer in answers:
            assert (await answer).usage.completion_tokens == 60
        assert not [each for each in workshop.recorder.events if type(each).__name__ == "RequestPreempted"]


async def test_no_more_pins_than_a_bound_exist_however_little_room_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ferrum.scheduling.pinned_prefixes._MOST_PINS", 3)
    async with running(_workshop()) as workshop:
        pins = workshop.engine.pins
        for number in range(3):
            await asyncio.to_thread(pins.pin, f"p{number}", TextPrompt(RULES))
        with pytest.raises(ResourceExhausted, match="pinned prefixes: 4 needed, 3 available; unpin one"):
            await asyncio.to_thread(pins.pin, "p3", TextPrompt(RULES))
        await asyncio.to_thread(pins.unpin, "p0")
        await asyncio.to_thread(pins.pin, "p3", TextPrompt(RULES))
