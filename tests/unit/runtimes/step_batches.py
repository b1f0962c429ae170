"""Steps of a runtime written by hand, and the logits of a token sequence cut into steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ferrum.core.arrays import FloatArray
from ferrum.models.architectures import build_plan
from ferrum.plan.model_plan import ModelPlan
from ferrum.runtimes.protocol import LogitsDetail, Runtime, StepBatch
from ferrum.weights.checkpoint import Checkpoint, open_checkpoint
from tiny_models import VOCABULARY


def batch_of(parts: list[tuple[list[int], int, list[int]]]) -> StepBatch:
    """Parts are (tokens, start position, block table); every row is an output."""
    tokens = [token for part in parts for token in part[0]]
    positions = [start + i for ids, start, _ in parts for i in range(len(ids))]
    starts = np.cumsum([0] + [len(part[0]) for part in parts])
    most = max(len(table) for _, _, table in parts)
    tables = np.zeros((len(parts), most), np.int32)
    for row, (_, _, table) in enumerate(parts):
        tables[row, : len(table)] = table
    return StepBatch(
        token_ids=np.array(tokens, np.int32),
        positions=np.array(positions, np.int32),
        sequence_starts=starts.astype(np.int32),
        block_tables=tables,
        output_rows=np.arange(len(tokens), dtype=np.int32),
        sampling=None,
    )


def logits_of(
    runtime: Runtime, tokens: list[int], chunk: int, table: list[int], start: int = 0
) -> FloatArray:
    """Logits of ``tokens[start:]``, ``chunk`` rows a step; what lies before ``start`` has run already."""
    rows = [
        runtime.run(batch_of([(tokens[i : i + chunk], i, table)]), LogitsDetail.FULL).logits
        for i in range(start, len(tokens), chunk)
    ]
    return np.concatenate(rows)


def open_tiny(path: Path) -> tuple[Checkpoint, ModelPlan]:
    checkpoint = open_checkpoint(path)
    return checkpoint, build_plan(checkpoint, 1024)


def some_tokens(count: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, VOCABULARY, count)]
