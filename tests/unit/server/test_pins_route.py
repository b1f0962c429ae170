"""Pins whose callers leave: nothing is computed for them any longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from asgi_client import Call, get, start
from starlette.applications import Starlette

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.execution.executor import ExecutorCapacity
from ferrum.server.admin_key import AdminKey
from ferrum.server.administration import Administration
from ferrum.server.app import create_app
from ferrum.server.lifecycle import ServerLifecycle
from ferrum.server.served_models import ServedModels
from ferrum.server.server_context import ServerContext
from ferrum.server.server_options import ServerOptions
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor

KEY = "a-key-that-is-long-enough"
HEADERS = {"Authorization": f"Bearer {KEY}"}
NUM_TOKENS, CHUNK = 1600, 16


@pytest.fixture
def executor() -> ScriptedExecutor:
    capacity = ExecutorCapacity(num_blocks=512, block_tokens=16, context_length=2048, vocabulary_size=258)
    return ScriptedExecutor(capacity=capacity, latency_s=0.01)


@pytest.fixture
async def engine(executor: ScriptedExecutor) -> AsyncIterator[ContinuousBatchEngine]:
    scheduler = SchedulerConfig(prefill_step_chunk=CHUNK)
    built = (
        EngineBuilder(EngineConfig(scheduler=scheduler))
        .with_tokenizer(ByteTokenizer(), None)
        .with_executor(executor)
        .build()
    )
    yield built
    await built.shutdown(0.0)


@pytest.fixture
def app(engine: ContinuousBatchEngine) -> Starlette:
    context = ServerContext(
        engine,
        ServedModels(("tiny",), 1, 2048),
        ServerLifecycle(),
        ServerOptions(),
        administration=Administration(AdminKey(KEY), engine.pins),
    )
    return create_app(context)


def pin(app: Starlette, name: str, letter: str) -> Call:
    return start(app, "/admin/pins", {"name": name, "prompt": letter * NUM_TOKENS}, HEADERS)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_pin_whose_caller_stays_is_made(app: Starlette, executor: ScriptedExecutor) -> None:
    answer = await pin(app, "rules", "r").finished()

    assert (answer.status, answer.json["num_tokens"]) == (201, NUM_TOKENS)
    assert executor.num_steps >= NUM_TOKENS / CHUNK


async def test_a_pin_whose_caller_leaves_is_computed_no_further(
    app: Starlette, engine: ContinuousBatchEngine, executor: ScriptedExecutor
) -> None:
    call = pin(app, "rules", "r")
    await until(lambda: executor.num_steps > 3)

    call.leave()

    assert (await call.finished()).status == 499
    await until(lambda: engine.status().num_running == 0)
    assert executor.num_steps < NUM_TOKENS / CHUNK / 2
    assert (await get(app, "/admin/pins", HEADERS)).json["data"] == []


async def test_a_pin_whose_caller_leaves_in_the_queue_is_never_begun(
    app: Starlette, engine: ContinuousBatchEngine, executor: ScriptedExecutor
) -> None:
    first, second, third = pin(app, "first", "a"), pin(app, "second", "b"), pin(app, "third", "c")
    await until(lambda: executor.num_steps > 3)

    second.leave()
    first.leave()

    assert [(await call.finished()).status for call in (first, second, third)] == [499, 499, 201]
    assert executor.num_steps < 1.5 * NUM_TOKENS / CHUNK
    assert [each.name for each in engine.pins.pins] == ["third"]
