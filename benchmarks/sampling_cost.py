"""What choosing a batch of tokens costs: milliseconds a step, for rows of a large vocabulary.

    python benchmarks/sampling_cost.py [--rows 16] [--vocabulary 262144] [--threads 2]

Rows as language models give them (a few likely tokens, a long tail), and the worst there is for truncation:
normally distributed logits, where the likeliest nine tenths are more than half of the vocabulary.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ferrum import _native
from ferrum.core.arrays import FloatArray
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.step import SamplingInstruction
from ferrum.execution.sampling_columns import build_sampling_batch
from ferrum.sampling.request_rules import begin_rules
from ferrum.testing.byte_tokenizer import ByteTokenizer

HISTORY_TOKENS = 2000
REPETITIONS = 30

CASES = {
    "greedy": SamplingParams(temperature=0),
    "temperature": SamplingParams(),
    "top_p 0.9": SamplingParams(top_p=0.9),
    "top_k 40, top_p 0.9": SamplingParams(top_k=40, top_p=0.9),
    "top_p 0.9, penalties": SamplingParams(
        top_p=0.9, repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=0.2
    ),
    "greedy, penalties": SamplingParams(temperature=0, repetition_penalty=1.1),
    "DRY": SamplingParams(top_p=0.9, dry_multiplier=0.8),
    "typical_p 0.9": SamplingParams(typical_p=0.9),
    "top_n_sigma 1": SamplingParams(top_n_sigma=1.0),
    "XTC": SamplingParams(min_p=0.02, xtc_probability=1.0),
    "dynamic temperature": SamplingParams(dynatemp_range=0.5, top_p=0.9),
    "mirostat": SamplingParams(mirostat=2),
}


def model_like(rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    """Logits that fall with the logarithm of the rank, in random places."""
    ranks = np.argsort(rng.random(shape), axis=-1) + 1
    return (-1.5 * np.log(ranks) + rng.normal(0, 0.5, shape)).astype(np.float32)


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    return rng.normal(0, 1, shape).astype(np.float32)


ROWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], FloatArray]] = {
    "model-like": model_like,
    "normal": normal,
}


def measure(rows: int, vocabulary: int, threads: int, kernel_set: str) -> None:
    rng = np.random.default_rng(1)
    sampler = _native.kernels.Sampler(kernel_set, threads, rows, vocabulary, 2 * HISTORY_TOKENS)
    tokens, mirostat_mu = np.zeros(rows, np.int32), np.zeros(rows)
    history = (rng.zipf(1.2, (rows, HISTORY_TOKENS)) % vocabulary).tolist()
    print(f"{rows} rows of {vocabulary} words, {threads} threads: ms a step, least and median")
    for kind, make in ROWS.items():
        sampler.load(make(rng, (rows, vocabulary)))
        for name, params in CASES.items():
            instructions = [_instruction(params, ids, row) for row, ids in enumerate(history)]
            times = []
            for step in range(REPETITIONS):
                batch = [replace(each, position=each.position + step) for each in instructions]
                started = time.perf_counter()
                sampler.choose(build_sampling_batch(batch), tokens, mirostat_mu)
                times.append((time.perf_counter() - started) * 1e3)
            assert (tokens >= 0).all()
            print(f"{kind:12} {name:24} {min(times):7.2f} {sorted(times)[REPETITIONS // 2]:7.2f}")


def _instruction(params: SamplingParams, history: list[int], row: int) -> SamplingInstruction:
    rules = begin_rules(params, history[: HISTORY_TOKENS // 2], ByteTokenizerOfAll(), 2**31)
    if rules is not None:
        for token_id in history[HISTORY_TOKENS // 2 :]:
            rules.take(token_id)
    return SamplingInstruction(
        params.temperature,
        params.top_k,
        params.top_p,
        params.min_p,
        seed=row,
        position=HISTORY_TOKENS,
        rules=None if rules is None else rules.rules(),
    )


class ByteTokenizerOfAll(ByteTokenizer):
    """Every id has bytes, none of which breaks a sequence."""

    def token_bytes(self, token_id: int) -> bytes:
        return b"x"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=262_144)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kernel-set", default="")
    arguments = parser.parse_args()
    measure(arguments.rows, arguments.vocabulary, arguments.threads, arguments.kernel_set)
