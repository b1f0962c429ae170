from __future__ import annotations

import hashlib

import pytest

from ferrum.core.sampling_params import SamplingParams
from ferrum.core.token_trace import hash_token_ids, trace_tokens


def test_the_hash_is_of_a_label_and_little_endian_words() -> None:
    content = b"ferrum-token-ids:u32-le-v1\0" + b"\x01\0\0\0" + b"\0\1\0\0"
    assert hash_token_ids((1, 256)) == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert hash_token_ids((1, 256)) != hash_token_ids((256, 1))


@pytest.mark.parametrize(
    ("num_prompt", "num_generated", "lengths"),
    [(1000, 1000, (64, 128, 256, 32)), (64, 32, (64, 64, 32, 32)), (1, 0, (1, 1, 0, 0))],
)
def test_no_more_ids_are_shown_than_the_limits_say(
    num_prompt: int, num_generated: int, lengths: tuple[int, ...]
) -> None:
    prompt, generated = tuple(range(num_prompt)), tuple(range(7, 7 + num_generated))
    trace = trace_tokens(prompt, generated, SamplingParams(), max_tokens=2000, seed=5)
    runs = (trace.prompt, trace.generated)
    assert tuple(len(ids) for run in runs for ids in (run.prefix, run.tail)) == lengths
    assert (trace.prompt.count, trace.generated.count) == (num_prompt, num_generated)
    assert trace.prompt.prefix == prompt[: lengths[0]]
    assert trace.prompt.tail == prompt[-lengths[1] :]
    assert trace.generated.sha256 == hash_token_ids(generated)


def test_the_processors_are_those_that_had_an_effect() -> None:
    def processors(**sampling: float) -> tuple[str, ...]:
        return trace_tokens((1,), (), SamplingParams(**sampling), 1, 0).processors

    assert processors() == ()
    assert processors(temperature=0.5, top_p=0.9, min_p=0.1, top_k=3) == (
        "temperature",
        "min_p",
        "top_k",
        "top_p",
    )
    greedy = trace_tokens((1,), (), SamplingParams(temperature=0, top_k=3), 1, 0)
    assert (greedy.sampler, greedy.processors) == ("greedy", ())
    assert processors(xtc_probability=0.5, typical_p=0.5, dynatemp_range=1, top_n_sigma=1, mirostat=2) == (
        "top_n_sigma",
        "dynatemp",
        "typical_p",
        "xtc",
        "mirostat",
    )
    penalties = {"repetition_penalty": 1.5, "presence_penalty": 1.0, "frequency_penalty": 0.5}
    for temperature in (0.0, 1.0):
        assert processors(dry_multiplier=1.0, temperature=temperature, **penalties) == (*penalties, "dry")
    assert processors(repeat_last_n=0, **penalties) == ()


def test_penalties_are_those_that_were_asked_for() -> None:
    sampling = SamplingParams(repetition_penalty=1.5, presence_penalty=-1, frequency_penalty=0.25)
    trace = trace_tokens((1,), (), sampling, 1, 0)
    assert (trace.repetition_penalty, trace.presence_penalty, trace.frequency_penalty) == (1.5, -1.0, 0.25)


def test_seed_and_budget_are_the_resolved_ones() -> None:
    trace = trace_tokens((1,), (), SamplingParams(), max_tokens=17, seed=2**63 - 1)
    assert (trace.seed, trace.max_tokens, trace.sampling_rng_algorithm) == (2**63 - 1, 17, "philox4x32-10")
    assert (trace.schema_version, trace.token_encoding) == (1, "u32-le-v1")
