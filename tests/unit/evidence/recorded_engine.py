"""A whole engine over a scripted executor whose evidence is written, and what it wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.evidence_config import EvidenceConfig
from ferrum.core.request import InferenceRequest, InferenceResult, TextPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor


@dataclass
class RecordedEngine:
    """``lines`` closes the engine and reads a journal."""

    evidence: EvidenceConfig
    executor: ScriptedExecutor = field(default_factory=ScriptedExecutor)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)

    def __post_init__(self) -> None:
        self.engine: ContinuousBatchEngine = (
            EngineBuilder(EngineConfig(scheduler=self.scheduler, evidence=self.evidence))
            .with_tokenizer(ByteTokenizer())
            .with_executor(self.executor)
            .build()
        )

    def answer(self, *requests: InferenceRequest) -> list[InferenceResult]:
        return self.engine.generate(requests)

    def lines(self, path: Path) -> list[dict[str, Any]]:
        self.engine.close(0.0)
        return read_lines(path)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ask(request_id: str, prompt: str = "hello", **sampling: Any) -> InferenceRequest:
    chosen = {"max_tokens": 8, "temperature": 0.0, "seed": 1, **sampling}
    return InferenceRequest(request_id, TextPrompt(prompt), SamplingParams(**chosen))
