"""What sixteen streaming clients of ``ferrum serve`` get of the throughput that ``LLM.generate`` has offline.

    python benchmarks/serve_share.py smollm2:135m

Prompts and answers have the same lengths on both sides (128 tokens each), the client shares the cores with
the server, and the two take turns. Prints tokens per second of each pair and the median share.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ferrum import LLM, SamplingParams
from ferrum.bench.load.load_report import ClosedLoop, ServeLoad
from ferrum.bench.load.load_shape import LoadShape
from ferrum.core.request import TokenPrompt

NUM_CLIENTS = 16
NUM_TOKENS = 128


def prompts(seed: int) -> list[list[int]]:
    """Fresh first tokens for every run, so that no cache of prefixes helps."""
    draw = random.Random(seed)
    return [[draw.randrange(1000, 40_000) for _ in range(NUM_TOKENS)] for _ in range(NUM_CLIENTS)]


def offline_rate(llm: LLM, seed: int) -> float:
    """Output tokens per second."""
    batch = [TokenPrompt(tuple(ids)) for ids in prompts(seed)]
    sampling = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
    began = time.perf_counter()
    results = llm.generate(batch, sampling)
    seconds = time.perf_counter() - began
    return sum(len(result.token_ids) for result in results) / seconds


async def served_rate(url: str, model: str, seed: int) -> float:
    """Output tokens per second."""
    shape = LoadShape(num_requests=NUM_CLIENTS, prompt_words=1, output_tokens=NUM_TOKENS, seed=seed)
    client = ServeLoad(url, model, shape, ClosedLoop(NUM_CLIENTS), is_chat=False).client()
    began = time.perf_counter()
    records = await asyncio.gather(*(client.answer(ids, NUM_TOKENS) for ids in prompts(seed)))
    seconds = time.perf_counter() - began
    failed = [record.error for record in records if record.error is not None]
    assert not failed, failed
    return sum(record.num_tokens for record in records) / seconds


@contextmanager
def server(model: str) -> Iterator[str]:
    """The URL of a server that has loaded ``model`` as "bench"."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "ferrum",
        "serve",
        model,
        "--served-model-name",
        "bench",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = next((line for line in process.stderr if line.startswith("serving")), None)
        assert said is not None, "the server did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--pairs", type=int, default=5)
    given = arguments.parse_args()
    with LLM(given.model) as llm, server(given.model) as url:
        offline_rate(llm, 0)
        asyncio.run(served_rate(url, "bench", 0))
        shares = []
        for pair in range(1, given.pairs + 1):
            offline = offline_rate(llm, 2 * pair)
            served = asyncio.run(served_rate(url, "bench", 2 * pair + 1))
            shares.append(served / offline)
            print(f"offline {offline:,.0f} tok/s, served {served:,.0f} tok/s, share {shares[-1]:.3f}")
        print(f"median share {statistics.median(shares):.3f}")


if __name__ == "__main__":
    main()
