"""What a constraint costs: throughput of 16 sequences, and the time to the first token of a cached schema.

    python benchmarks/constraint_cost.py MODEL [--sequences 16] [--tokens 128] [--rounds 3] [--only gaps]

Sixteen answers of equal length with a schema of 20 fields and without, in turn, so that both meet the same
machine. Rates are those of the steps in which all sixteen decode: constrained answers, of which tokens that
can only come take no step, end one by one, and what is left is a smaller batch, not a dearer constraint. The
rate from request to last answer is printed beside it. Answers in which every token is chosen, because they
see its log-probability, are compared with free ones that see theirs.

Beside it a stream runs alone and while pathological constraints, never seen before, are compiled: its gaps
over its median say what they do to others. Those that touch the time from the request to its acceptance are
compilation's; what follows is a prompt that joins and a step of two sequences, as with any request. What the
machine alone does (other processes, a host that takes processors away) is measured by processes, one on each
processor, that look at the clock and do nothing else, for as long as a stream takes.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from machine_pauses import longest_pause

from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import start_model
from ferrum.cli.lasting_objects import lasting_objects
from ferrum.core.config import EngineConfig
from ferrum.core.constraint import Constraint
from ferrum.core.errors import InvalidRequest
from ferrum.core.events import Event, StepRan
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
# Each with a number that makes it another one.
PATHOLOGICAL: dict[str, Callable[[int], Constraint]] = {
    "3,000-value enum": lambda number: Constraint.json_schema(
        {"enum": [f"value {i} {i * 7919 % 10007} {number}" for i in range(3000)]}
    ),
    "(a|aa)*{1,5000}": lambda number: Constraint.json_schema(
        {"type": "string", "pattern": f"((a|aa)*){{1,{5000 + number}}}"}
    ),
    "60-deep nesting": lambda number: Constraint.json_schema(
        f'{{"properties":{{"p{number}":' * 60 + "{}" + "}}" * 60
    ),
    "maxItems 100000": lambda number: Constraint.json_schema({"type": "array", "maxItems": 100_000 + number}),
    "1,000 optional properties": lambda number: Constraint.json_schema(
        {"type": "object", "properties": {f"p{i}_{number}": {} for i in range(1000)}}
    ),
}
FREE, CONSTRAINED = "free", "constrained"
FREE_SEEN, EVERY_CHOICE = "free with log-probabilities", "every choice made"
PROMPT = ChatPrompt([{"role": "user", "content": "Fill in the form."}])
# Text that goes on as text: a token that is part of a character shows nothing, and would look like a gap.
STREAM_PROMPT = TextPrompt(
    "The old sailor told us of the islands, one after the other, and of the people there. " * 4
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["gaps", "throughput"])
    arguments = parser.parse_args()
    options = LoadOptions(engine=EngineConfig(max_model_len=1024))
    with lasting_objects():  # As a server's.
        steps = FullSteps(arguments.sequences)
        engine = start_model(arguments.model, options, SilentReporter(), "llm", observers=(steps,)).engine
    try:
        asyncio.run(measure(engine, steps, arguments))
    finally:
        engine.close(0.0)


class FullSteps:
    """An Observer: tokens and time of the steps in which ``num_sequences`` decode, without prompts."""

    def __init__(self, num_sequences: int) -> None:
        self._num_sequences = num_sequences
        self.start()

    def start(self) -> None:
        self._num_tokens, self._seconds, self._last_at = 0, 0.0, 0.0

    @property
    def tokens_per_s(self) -> float:
        return self._num_tokens / self._seconds

    def on(self, event: Event) -> None:
        if not isinstance(event, StepRan):
            return
        now = time.perf_counter()
        # A step of decodes computes what the one before it chose, and what could only follow.
        if self._last_at and event.num_sequences == self._num_sequences and not event.num_prefill_tokens:
            self._num_tokens += event.num_tokens
            self._seconds += now - self._last_at
        self._last_at = now


async def measure(engine: ContinuousBatchEngine, steps: FullSteps, arguments: argparse.Namespace) -> None:
    started = time.perf_counter()
    await first_token(engine, Constraint.json_schema(SCHEMA), "warm")
    print(
        f"first constraint of the process: first token after {(time.perf_counter() - started) * 1e3:.0f} ms"
    )
    if arguments.only != "gaps":
        await measure_throughput(engine, steps, arguments)
    if arguments.only != "throughput":
        await measure_gaps(engine, arguments.rounds)


async def measure_throughput(
    engine: ContinuousBatchEngine, steps: FullSteps, arguments: argparse.Namespace
) -> None:
    schema = Constraint.json_schema(SCHEMA)
    kinds: dict[str, tuple[Constraint | None, int | None]] = {
        FREE: (None, None),
        CONSTRAINED: (schema, None),
        FREE_SEEN: (None, 0),
        EVERY_CHOICE: (schema, 0),
    }
    full: dict[str, list[float]] = {name: [] for name in kinds}
    whole: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(arguments.rounds):
        for name, (constraint, logprobs) in kinds.items():
            steps.start()
            rate = await throughput(engine, arguments, constraint, logprobs, f"{name}-{number}")
            whole[name].append(rate)
            full[name].append(steps.tokens_per_s)
    for name in kinds:
        rates = ", ".join(f"{rate:.0f}" for rate in full[name])
        print(
            f"{name}: {statistics.median(full[name]):.0f} tokens/s of {rates}; "
            f"from request to last answer {statistics.median(whole[name]):.0f}"
        )
    for name, without in ((CONSTRAINED, FREE), (EVERY_CHOICE, FREE_SEEN)):
        costs = [
            1 - statistics.median(each[name]) / statistics.median(each[without]) for each in (full, whole)
        ]
        print(
            f"cost of {name}: {100 * costs[0]:.1f} % of {without}; to the last answer {100 * costs[1]:.1f} %"
        )
    plain = [await first_token(engine, None, f"plain-{i}") for i in range(15)]
    cached = [await first_token(engine, Constraint.json_schema(SCHEMA), f"cached-{i}") for i in range(15)]
    without_s = statistics.median(plain)
    later_s = statistics.median(cached) - without_s
    print(f"first token with a cached schema: {later_s * 1e3:+.1f} ms beside {without_s * 1e3:.1f} ms")


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


@dataclass(frozen=True, slots=True)
class Gaps:
    """Of one stream, over its own median: the largest while a constraint was compiled (0: there was none),
    and the largest of the others. ``stream_s`` is how long it took, ``median_s`` its median gap. ``word``:
    what became of the request, ``compile_s``: how long that took.
    """

    compiling: float
    others: float
    stream_s: float
    median_s: float
    word: str = ""
    compile_s: float = 0.0


async def measure_gaps(engine: ContinuousBatchEngine, rounds: int) -> None:
    print(f"gaps of a stream over its median, largest of each of {rounds} streams, in brackets their median:")
    for name, with_other in (("alone", False), ("beside a request of no constraint", True)):
        found = [await stream_gaps(engine, f"{name}-{i}", None, with_other) for i in range(rounds)]
        print(f"  {name}: {listed(each.others for each in found)}")
        if not with_other:
            stream_s = statistics.median(each.stream_s for each in found)
            median_s = statistics.median(each.median_s for each in found)
            pauses = [longest_pause(stream_s) for _ in range(rounds)]
            print(f"  the machine alone: {listed(1 + pause / median_s for pause in pauses)}")
    for name, make in PATHOLOGICAL.items():
        found = [await stream_gaps(engine, f"{name}-{i}", make(i), True) for i in range(rounds)]
        print(
            f"  beside {name}: {listed(each.compiling for each in found)} while it is compiled "
            f"({statistics.median(each.compile_s for each in found) * 1e3:.0f} ms, {found[0].word}), "
            f"{listed(each.others for each in found)} otherwise"
        )


def listed(values: Iterable[float]) -> str:
    known = list(values)
    return f"{', '.join(f'{value:.1f}' for value in known)} ({statistics.median(known):.1f})"


async def stream_gaps(
    engine: ContinuousBatchEngine, name: str, constraint: Constraint | None, with_other: bool
) -> Gaps:
    sampling = SamplingParams(max_tokens=200, temperature=0.0, ignore_eos=True)
    times: list[float] = []
    answered: asyncio.Task[tuple[float, float, str]] | None = None
    async for _ in engine.infer_stream(InferenceRequest(name, STREAM_PROMPT, sampling)):
        times.append(time.perf_counter())
        if len(times) == 60 and with_other:
            answered = asyncio.create_task(answer_or_refusal(engine, constraint, f"{name}-other"))
    asked_at, accepted_at, word = (0.0, 0.0, "") if answered is None else await answered
    gaps = list(pairwise(times[5:]))
    median = statistics.median(later - earlier for earlier, later in gaps)
    compiling, others = [0.0], [0.0]
    for earlier, later in gaps:
        is_compiling = constraint is not None and earlier < accepted_at and later > asked_at
        (compiling if is_compiling else others).append((later - earlier) / median)
    stream_s = times[-1] - times[0]
    return Gaps(max(compiling), max(others), stream_s, median, word, accepted_at - asked_at)


async def answer_or_refusal(
    engine: ContinuousBatchEngine, constraint: Constraint | None, name: str
) -> tuple[float, float, str]:
    """When it was asked for and when it was accepted or refused, and which."""
    request = InferenceRequest(
        name, PROMPT, SamplingParams(max_tokens=1, temperature=0, constraint=constraint)
    )
    asked_at = time.perf_counter()
    try:
        stream = await engine.open_stream(request)
    except InvalidRequest as error:
        return asked_at, time.perf_counter(), f"refused: {str(error)[:60]}"
    accepted_at = time.perf_counter()
    async with stream:
        async for _ in stream:
            pass
    return asked_at, accepted_at, "answered"


if __name__ == "__main__":
    main()
