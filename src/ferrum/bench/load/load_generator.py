"""Sends a load: so many requests at a time, or at random moments whether the server keeps up or not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ferrum.bench.load.answer_record import AnswerRecord
from ferrum.bench.load.stream_client import StreamClient


async def closed_loop(
    client: StreamClient, prompts: Sequence[str], output_tokens: int, concurrency: int
) -> list[AnswerRecord]:
    """Always ``concurrency`` requests at a time, the next as soon as one ends; records in prompt order."""
    records: dict[int, AnswerRecord] = {}
    waiting = iter(enumerate(prompts))

    async def work() -> None:
        for index, prompt in waiting:
            records[index] = await client.answer(prompt, output_tokens)

    await asyncio.gather(*(work() for _ in range(min(concurrency, len(prompts)))))
    return [records[index] for index in range(len(prompts))]


async def open_loop(
    client: StreamClient, prompts: Sequence[str], output_tokens: int, arrivals: Sequence[float]
) -> list[AnswerRecord]:
    """Sends each prompt at its arrival, in seconds from now; records in prompt order.

    Waiting counts from the arrival, also where this process was late: a slow server must not slow its own
    load down and look better for it.
    """
    loop = asyncio.get_running_loop()
    started_loop, started = loop.time(), client.clock()

    async def send(prompt: str, arrival: float) -> AnswerRecord:
        await asyncio.sleep(max(0.0, started_loop + arrival - loop.time()))
        return await client.answer(prompt, output_tokens, sent_at=started + arrival)

    pairs = zip(prompts, arrivals, strict=True)
    return await asyncio.gather(*(send(prompt, arrival) for prompt, arrival in pairs))
