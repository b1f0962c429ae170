"""What a constraint costs: throughput of 16 sequences, and the time to the first token of a cached schema.

    python benchmarks/constraint_cost.py MODEL [--sequences 16] [--tokens 128] [--rounds 3]

Sixteen answers of equal length with a schema of 20 fields and without, in turn, so that both meet the same
machine; the ratio of the medians is the cost. Beside it a stream runs alone and while pathological
constraints are compiled: its largest gap over its median says what they do to others.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from dataclasses import replace
from itertools import pairwise

from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import start_model
from ferrum.cli.lasting_objects import lasting_objects
from ferrum.core.config import EngineConfig
from ferrum.core.constraint import Constraint
from ferrum.core.errors import InvalidRequest
from ferrum.core.request import ChatPrompt, InferenceRequest, TextPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.weights.progress_reporter import SilentReporter

FIELDS = [f"field_{index}" for index in range(20)]
TYPES = [
    {"type": "string"},
    {"type": "integer"},
    {"type": "boolean"},
    {"type": "array", "items": {"type": "string"}},
]
SCHEMA = {
    "type": "object",
    "properties": {name: TYPES[index % 4] for index, name in enumerate(FIELDS)},
    "required": FIELDS,
    "additionalProperties": False,
}
PATHOLOGICAL = {
    "3,000-value enum": Constraint.json_schema(
        {"enum": [f"value {i} {i * 7919 % 10007}" for i in range(3000)]}
    ),
    "(a|aa)*{1,5000}": Constraint.json_schema({"type": "string", "pattern": "((a|aa)*){1,5000}"}),
    "60-deep nesting": Constraint.json_schema('{"properties":{"p":' * 60 + "{}" + "}}" * 60),
    "maxItems 100000": Constraint.json_schema({"type": "array", "maxItems": 100_000}),
    "1,000 optional properties": Constraint.json_schema(
        {"type": "object", "properties": {f"p{i}": {} for i in range(1000)}}
    ),
}
PROMPT = ChatPrompt([{"role": "user", "content": "Fill in the form."}])
# Text that goes on as text: a token that is part of a character shows nothing, and would look like a gap.
STREAM_PROMPT = TextPrompt(
    "The old sailor told us of the islands, one after the other, and of the people there. " * 4
)


class Free:
    """No constraint at all."""


FREE = Free()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    options = LoadOptions(engine=EngineConfig(max_model_len=1024))
    with lasting_objects():  # As a server's.
        engine = start_model(arguments.model, options, SilentReporter(), "llm").engine
    try:
        asyncio.run(measure(engine, arguments))
    finally:
        engine.close(0.0)


async def measure(engine: ContinuousBatchEngine, arguments: argparse.Namespace) -> None:
    started = time.perf_counter()
    await first_token(engine, Constraint.json_schema(SCHEMA), "warm")
    print(
        f"first constraint of the process: first token after {(time.perf_counter() - started) * 1e3:.0f} ms"
    )
    rates: dict[str, list[float]] = {"free": [], "constrained": [], "every choice made": []}
    for number in range(arguments.rounds):
        for name, constraint, logprobs in (
            ("free", None, None),
            ("constrained", Constraint.json_schema(SCHEMA), None),
            ("every choice made", Constraint.json_schema(SCHEMA), 0),
        ):
            rates[name].append(await throughput(engine, arguments, constraint, logprobs, f"{name}-{number}"))
    for name, values in rates.items():
        print(f"{name}: {statistics.median(values):.1f} tokens/s of {[round(each, 1) for each in values]}")
    free = statistics.median(rates["free"])
    for name in ("constrained", "every choice made"):
        print(f"cost of {name}: {100 * (1 - statistics.median(rates[name]) / free):.1f} % of throughput")
    plain = [await first_token(engine, None, f"plain-{i}") for i in range(15)]
    cached = [await first_token(engine, Constraint.json_schema(SCHEMA), f"cached-{i}") for i in range(15)]
    without_s = statistics.median(plain)
    later_s = statistics.median(cached) - without_s
    print(f"first token with a cached schema: {later_s * 1e3:+.1f} ms beside {without_s * 1e3:.1f} ms")
    await gaps_beside_compilations(engine)


async def throughput(
    engine: ContinuousBatchEngine,
    arguments: argparse.Namespace,
    constraint: Constraint | None,
    logprobs: int | None,
    name: str,
) -> float:
    sampling = SamplingParams(
        max_tokens=arguments.tokens,
        temperature=1.0,
        ignore_eos=constraint is None,
        constraint=constraint,
        logprobs=logprobs,
    )
    requests = [
        InferenceRequest(f"{name}-{index}", PROMPT, replace(sampling, seed=index))
        for index in range(arguments.sequences)
    ]
    started = time.perf_counter()
    results = await asyncio.gather(*map(engine.infer, requests))
    return sum(each.usage.completion_tokens for each in results) / (time.perf_counter() - started)


async def first_token(engine: ContinuousBatchEngine, constraint: Constraint | None, name: str) -> float:
    request = InferenceRequest(
        name, PROMPT, SamplingParams(max_tokens=1, temperature=0, constraint=constraint)
    )
    started = time.perf_counter()
    await engine.infer(request)
    return time.perf_counter() - started


async def gaps_beside_compilations(engine: ContinuousBatchEngine) -> None:
    print("gaps of a stream, largest over median:")
    print(f"  alone: {await stream_gaps(engine, 'alone', None):.2f}")
    print(f"  beside a request of no constraint: {await stream_gaps(engine, 'other', FREE):.2f}")
    for index, (name, constraint) in enumerate(PATHOLOGICAL.items()):
        print(f"  beside {name}: {await stream_gaps(engine, f'beside-{index}', constraint):.2f}")


async def stream_gaps(engine: ContinuousBatchEngine, name: str, other: Constraint | Free | None) -> float:
    sampling = SamplingParams(max_tokens=200, temperature=0.0, ignore_eos=True)
    times: list[float] = []
    answered: asyncio.Task[str] | None = None
    async for _ in engine.infer_stream(InferenceRequest(name, STREAM_PROMPT, sampling)):
        times.append(time.perf_counter())
        if len(times) == 60 and other is not None:
            constraint = None if isinstance(other, Free) else other
            answered = asyncio.create_task(answer_or_refusal(engine, constraint, f"{name}-other"))
    if answered is not None:
        print(f"    {await answered}")
    gaps = [later - earlier for earlier, later in pairwise(times[5:])]
    return max(gaps) / statistics.median(gaps)


async def answer_or_refusal(engine: ContinuousBatchEngine, constraint: Constraint | None, name: str) -> str:
    started = time.perf_counter()
    try:
        await first_token(engine, constraint, name)
        word = "answered"
    except InvalidRequest as error:
        word = f"refused ({str(error)[:60]})"
    return f"{word} after {(time.perf_counter() - started) * 1e3:.0f} ms"


if __name__ == "__main__":
    main()
