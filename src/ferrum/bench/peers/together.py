"""Several streamed answers at once, from a client's side: the rate at which all of them advance together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ferrum.bench.load.answer_record import AnswerRecord
from ferrum.bench.load.stream_client import StreamClient
from ferrum.bench.peers.peer import PeerFailed


def answer_together(
    client: StreamClient, prompts: Sequence[list[int] | str], output_tokens: int
) -> list[AnswerRecord]:
    """All prompts at the same time. Raises PeerFailed when one of them has no complete answer."""

    async def answer_all() -> list[AnswerRecord]:
        return await asyncio.gather(*(client.answer(prompt, output_tokens) for prompt in prompts))

    records = asyncio.run(answer_all())
    for record in records:
        if record.error is not None:
            raise PeerFailed(record.error)
    return records


def rate_together(records: Sequence[AnswerRecord]) -> float:
    """Tokens per second of all answers while every one of them was being given.

    A piece of text may be more than one token, or a token no text: an answer's tokens after its first are
    spread evenly over the time from its first to its last piece. Raises PeerFailed when the answers did not
    overlap.
    """
    spans = [(record.text_times[0], record.text_times[-1]) for record in records if record.text_times]
    if len(spans) < len(records):
        raise PeerFailed("an answer without text")
    begin, end = max(first for first, _ in spans), min(last for _, last in spans)
    if end <= begin:
        raise PeerFailed("its answers came one after the other, not together")
    pairs = zip(records, spans, strict=True)
    return sum((record.num_tokens - 1) / (last - first) for record, (first, last) in pairs)
