"""``ferrum bench serve``: runs a load against a server and keeps what is worth knowing about it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from ferrum.bench.load.answer_record import AnswerRecord
from ferrum.bench.load.load_generator import closed_loop, open_loop
from ferrum.bench.load.load_shape import LoadShape
from ferrum.bench.load.load_summary import LoadSummary, summarise
from ferrum.bench.load.stream_client import StreamClient, parse_url
from ferrum.bench.machine import Machine, read_machine
from ferrum.bench.source_commit import source_commit
from ferrum.core.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many requests at a time."""

    concurrency: int

    def __str__(self) -> str:
        return f"{self.concurrency} at a time"


@dataclass(frozen=True, slots=True)
class PoissonRate:
    """So many requests a second on average, at random moments."""

    requests_per_second: float

    def __str__(self) -> str:
        return f"{self.requests_per_second:g} a second at random"


@dataclass(frozen=True, slots=True)
class ServeLoad:
    """A load and the server it is for. ``url`` as ``parse_url`` takes it.

    ``ignores_eos``: asks for answers of full length, by a field that ferrum, llama.cpp and vLLM know.
    """

    url: str
    model: str
    shape: LoadShape
    pace: ClosedLoop | PoissonRate
    num_warmups: int = 1
    is_chat: bool = True
    ignores_eos: bool = True
    api_key: str | None = None
    timeout_s: float = 600.0

    def client(self) -> StreamClient:
        """Raises InvalidConfig for a URL that cannot be used."""
        extra: dict[str, object] = {"temperature": 0.0}
        if self.ignores_eos:
            extra["ignore_eos"] = True
        return StreamClient(
            parse_url(self.url), self.model, self.is_chat, self.api_key, self.timeout_s, extra
        )


@dataclass(frozen=True, slots=True)
class LoadReport:
    """``client_cpu_share`` is of one core: a client that is busy itself measures itself.

    Times of ``records`` count from ``started_at``.
    """

    load: ServeLoad
    summary: LoadSummary
    records: tuple[AnswerRecord, ...]
    started_at: float
    client_cpu_share: float
    machine: Machine
    commit: str | None

    def as_json(self) -> dict[str, object]:
        shape, pace = self.load.shape, self.load.pace
        return {
            "url": self.load.url,
            "model": self.load.model,
            "endpoint": "chat/completions" if self.load.is_chat else "completions",
            "concurrency": pace.concurrency if isinstance(pace, ClosedLoop) else None,
            "rate": pace.requests_per_second if isinstance(pace, PoissonRate) else None,
            "prompt_words": shape.prompt_words,
            "output_tokens_asked": shape.output_tokens,
            "shared_prefix_words": shape.shared_prefix_words,
            "num_prefixes": shape.num_prefixes,
            "seed": shape.seed,
            **self.summary.as_json(),
            "client_cpu_share": self.client_cpu_share,
            "machine": self.machine.as_json(),
            "commit": self.commit,
        }


def run_load(load: ServeLoad) -> LoadReport:
    """Raises InvalidConfig when the server does not answer even one warm-up request."""
    return asyncio.run(_run(load))


async def _run(load: ServeLoad) -> LoadReport:
    client, shape = load.client(), load.shape
    prompts = shape.prompts(load.num_warmups)
    for prompt in prompts[: load.num_warmups]:
        answer = await client.answer(prompt, shape.output_tokens)
        if answer.error is not None:
            raise InvalidConfig("--url", f"{load.url} does not answer: {answer.error}")
    prompts = prompts[load.num_warmups :]
    started_at, cpu_before = client.clock(), time.process_time()
    if isinstance(load.pace, ClosedLoop):
        records = await closed_loop(client, prompts, shape.output_tokens, load.pace.concurrency)
    else:
        arrivals = shape.arrivals(load.pace.requests_per_second)
        records = await open_loop(client, prompts, shape.output_tokens, arrivals)
    cpu_s = time.process_time() - cpu_before
    summary = summarise(records, shape.output_tokens)
    return LoadReport(
        load=load,
        summary=summary,
        records=tuple(records),
        started_at=started_at,
        client_cpu_share=cpu_s / summary.duration_s if summary.duration_s else 0.0,
        machine=read_machine(),
        commit=source_commit(),
    )
