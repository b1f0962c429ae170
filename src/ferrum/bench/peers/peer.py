"""What a comparison asks of another engine, and how one says that it cannot take part."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ferrum.bench.compare_phases import ComparePhase


@dataclass(frozen=True, slots=True)
class PeerSetup:
    """What every engine gets: the same file, the same number of threads, prompts over the same vocabulary.

    ``program`` is what the user named: a binary, an interpreter, or None to look for it.
    """

    model_path: Path
    num_threads: int
    vocabulary_size: int
    program: str | None = None


class Peer(Protocol):
    """Another engine with the model loaded. Closing it ends its processes; idempotent."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...

    def measure(self, phase: ComparePhase) -> float:
        """Tokens per second of the phase, measured once.

        Raises PhaseUnsupported for a phase it does not have, PeerFailed when it breaks.
        """
        ...

    def close(self) -> None: ...


class PeerUnavailable(Exception):
    """The engine is not installed, or does not run this file; ``reason`` is for the report."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PeerFailed(Exception):
    """The engine took part and broke; ``reason`` is for the report."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PhaseUnsupported(Exception):
    """The adapter has no way to measure this phase."""

    def __init__(self, phase: str) -> None:
        super().__init__(f"{phase} is not measured with this engine")
        self.phase = phase


class PromptMaker:
    """Random token ids; no two prompts begin alike. Mutable: its generator."""

    def __init__(self, vocabulary_size: int, seed: int = 1) -> None:
        self._vocabulary_size = vocabulary_size
        self._random = random.Random(seed)

    def make(self, num_tokens: int) -> list[int]:
        return [self._random.randrange(self._vocabulary_size) for _ in range(num_tokens)]
