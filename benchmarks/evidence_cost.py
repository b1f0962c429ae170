"""What writing evidence costs a step, and what not writing it costs, without a model.

    python benchmarks/evidence_cost.py

Sixteen requests decode on an executor that does next to nothing, so a step is Python alone. Prints the median
microseconds of a step without evidence, with a profile, with a scheduler trace, and with both; then what the
question "does anybody want this?" costs, which is all there is of it in a step without evidence.
"""

from __future__ import annotations

import statistics
import tempfile
import timeit
from pathlib import Path

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.core.config import EngineConfig
from ferrum.core.events import Event, Observers, StepRan
from ferrum.core.evidence_config import EvidenceConfig
from ferrum.core.request import InferenceRequest, TokenPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.step import SampledToken, StepPlan, StepResult
from ferrum.execution.executor import ExecutorCapacity
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor

REQUESTS, TOKENS, ROUNDS = 16, 400, 5


class QuickExecutor(ScriptedExecutor):
    """Always chooses the same token."""

    def execute(self, plan: StepPlan) -> StepResult:
        return StepResult(tuple(SampledToken(part.request_id, 97) for part in plan.parts if part.choices))


class StepTimes:
    """Whole steps, in microseconds."""

    def __init__(self) -> None:
        self.microseconds: list[float] = []

    def on(self, event: Event) -> None:
        if isinstance(event, StepRan):
            self.microseconds.append((event.schedule_s + event.execute_s + event.publish_s) * 1e6)


def step_time(evidence: EvidenceConfig) -> float:
    capacity = ExecutorCapacity(num_blocks=1024, block_tokens=32, context_length=1024, vocabulary_size=258)
    times = StepTimes()
    engine = (
        EngineBuilder(EngineConfig(evidence=evidence))
        .with_tokenizer(ByteTokenizer())
        .with_executor(QuickExecutor(capacity=capacity))
        .with_observer(times)
        .build()
    )
    try:
        engine.generate(
            [
                InferenceRequest(
                    f"r{index}", TokenPrompt((index, 5, 6)), SamplingParams(max_tokens=TOKENS, seed=index)
                )
                for index in range(REQUESTS)
            ]
        )
    finally:
        engine.close(0.0)
    return statistics.median(times.microseconds)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        profile, trace = (str(Path(folder) / name) for name in ("profile.jsonl", "trace.jsonl"))
        ways = {
            "none": EvidenceConfig(),
            "profile": EvidenceConfig(profile_jsonl=profile),
            "scheduler trace": EvidenceConfig(scheduler_trace_jsonl=trace),
            "both": EvidenceConfig(profile_jsonl=profile, scheduler_trace_jsonl=trace),
        }
        # In turns, so that whatever else the machine does meets all of them.
        rounds = [{name: step_time(way) for name, way in ways.items()} for _ in range(ROUNDS)]
    for name in ways:
        print(f"{name:16} {statistics.median(each[name] for each in rounds):8.1f} us a step")
    observers = Observers()
    question = min(timeit.repeat(lambda: observers.wants_details, number=100_000, repeat=5)) / 100_000
    print(f"the question     {question * 1e9:8.1f} ns")


if __name__ == "__main__":
    main()
