"""Log-probabilities of real arithmetic: beside the float interpreter, and whatever is done to the choice."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ferrum import LLM, EngineConfig, SamplingParams
from ferrum.core.arrays import FloatArray
from ferrum.core.config import SchedulerConfig
from ferrum.core.constraint import Constraint
from ferrum.core.logprobs import TokenLogprobs
from ferrum.core.request import TokenPrompt
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod
from ferrum.models.architectures import build_plan
from ferrum.runtimes.numpy_interpreter import NumpyInterpreter
from ferrum.runtimes.protocol import LogitsDetail, StepBatch
from ferrum.weights.checkpoint import open_checkpoint
from tiny_chat_model import write_tiny_chat_model

TEXT = "hello world, hello user, hello world again and again and again"
GREEDY = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True, logprobs=4, prompt_logprobs=4)


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_chat_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def llm(model_path: Path) -> Iterator[LLM]:
    with LLM(model_path, threads=1) as loaded:
        yield loaded


def float_logprobs(path: Path, ids: list[int]) -> FloatArray:
    """[len(ids) - 1, vocabulary]: of what follows each token, in float32 arithmetic on the same weights."""
    num_blocks = -(-len(ids) // 32)
    rows = np.arange(len(ids), dtype=np.int32)
    with open_checkpoint(path) as checkpoint:
        interpreter = NumpyInterpreter(build_plan(checkpoint, 1024), checkpoint.tensors, num_blocks)
        batch = StepBatch(
            token_ids=np.array(ids, np.int32),
            positions=rows,
            sequence_starts=np.array([0, len(ids)], np.int32),
            block_tables=np.arange(num_blocks, dtype=np.int32)[None],
            output_rows=rows,
            sampling=None,
        )
        logits = interpreter.run(batch, LogitsDetail.FULL).logits.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return (shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))[:-1]


def values(entries: tuple[TokenLogprobs, ...] | None) -> list[float]:
    assert entries is not None
    return [entry.logprob for entry in entries if entry.logprob is not None]


def test_their_sum_is_that_of_the_float_interpreter(llm: LLM, model_path: Path) -> None:
    [result] = llm.generate(TEXT, replace(GREEDY, max_tokens=6))
    ids = [entry.token_id for entry in result.prompt_logprobs or ()] + list(result.token_ids)
    exact = float_logprobs(model_path, ids)[np.arange(len(ids) - 1), ids[1:]]
    found = values(result.prompt_logprobs) + values(result.logprobs)
    np.testing.assert_allclose(found, exact, atol=5e-3)  # keys and values are kept in float16
    assert sum(found) == pytest.approx(exact.sum(), abs=2e-2)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 1e-30},
        {"temperature": 5.0, "seed": 3},
        {"top_k": 1},
        {"top_p": 1e-6, "temperature": 1.0},
        {"presence_penalty": 2.0, "frequency_penalty": 2.0},
        {"repetition_penalty": 2.0},
        {"logit_bias": {5: 100.0}},
        {"allowed_token_ids": (6, 7)},
    ],
)
def test_nothing_that_is_done_to_the_choice_has_a_part_in_them(llm: LLM, changes: dict[str, object]) -> None:
    """The token may be another, but the most likely ones in its place and its own value are the model's."""
    [plain] = llm.generate(TEXT, GREEDY)
    [changed] = llm.generate(TEXT, replace(GREEDY, **changes))
    assert changed.prompt_logprobs == plain.prompt_logprobs
    assert plain.logprobs is not None
    assert changed.logprobs is not None
    assert changed.logprobs[0].top == plain.logprobs[0].top
    prompt = [entry.token_id for entry in plain.prompt_logprobs or ()]
    ids = TokenPrompt((*prompt, *changed.token_ids))
    [scored] = llm.generate([ids], replace(GREEDY, max_tokens=0))
    assert values(scored.prompt_logprobs)[len(prompt) - 1 :] == values(changed.logprobs)


def test_answer_and_prompt_log_probabilities_are_the_same_numbers(llm: LLM) -> None:
    """What is found token by token is found again, to the bit, when the whole text is a prompt."""
    [result] = llm.generate(TEXT, GREEDY)
    prompt = [entry.token_id for entry in result.prompt_logprobs or ()]
    for chunk in (1, 7, 32):
        ids = TokenPrompt((*prompt, *result.token_ids))
        [scored] = llm.generate([ids], replace(GREEDY, max_tokens=0, prompt_logprobs=min(4, chunk)))
        assert values(scored.prompt_logprobs) == values(result.prompt_logprobs) + values(result.logprobs)


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(scheduler=SchedulerConfig(max_scored_tokens=1)),
        EngineConfig(scheduler=SchedulerConfig(prefill_step_chunk=3)),
        EngineConfig(prefix_cache=False),
        EngineConfig(speculation=SpeculationConfig(SpeculationMethod.NGRAM)),
    ],
)
def test_chunks_cache_and_speculation_change_no_bit_of_them(
    llm: LLM, model_path: Path, config: EngineConfig
) -> None:
    sampling = replace(GREEDY, max_tokens=60)
    expected = llm.generate([TEXT, TEXT[6:]], sampling)
    with LLM(model_path, threads=2, config=config) as other:
        found = other.generate([TEXT, TEXT[6:]], sampling)
    for one, another in zip(expected, found, strict=True):
        assert one.token_ids == another.token_ids
        assert one.prompt_logprobs == another.prompt_logprobs
        assert one.logprobs == another.logprobs


def test_sixteen_prompts_together_have_the_numbers_they_have_alone(llm: LLM) -> None:
    prompts = [
        TokenPrompt(tuple(3 + (7 * number + place) % 40 for place in range(50))) for number in range(16)
    ]
    together = llm.generate(prompts, GREEDY)
    for prompt, result in zip(prompts, together, strict=True):
        [alone] = llm.generate([prompt], GREEDY)
        assert alone.prompt_logprobs == result.prompt_logprobs
        assert alone.logprobs == result.logprobs


@pytest.mark.parametrize("num_tokens", [31, 32, 33, 64])
def test_a_cached_prompt_changes_no_number_around_the_borders_of_blocks(
    llm: LLM, model_path: Path, num_tokens: int
) -> None:
    prompt = TokenPrompt(tuple(5 + place % 23 for place in range(num_tokens)))
    sampling = replace(GREEDY, prompt_logprobs=None)
    with LLM(model_path, threads=1) as fresh:
        [cold] = fresh.generate([prompt], sampling)
        [warm] = fresh.generate([prompt], sampling)
        [scored] = fresh.generate([prompt], GREEDY)
    assert warm.usage.cached_tokens > 0
    assert scored.usage.cached_tokens == 0
    assert cold.logprobs == warm.logprobs == scored.logprobs
    [elsewhere] = llm.generate([prompt], GREEDY)
    assert elsewhere.prompt_logprobs == scored.prompt_logprobs


def test_each_of_several_answers_is_had_again_alone_to_the_bit(llm: LLM) -> None:
    sampling = SamplingParams(max_tokens=12, temperature=1.2, seed=8, n=3, logprobs=2, ignore_eos=True)
    [result] = llm.generate(TEXT, sampling)
    assert len({answer.token_ids for answer in result.answers}) == 3
    for answer in result.answers:
        [alone] = llm.generate(TEXT, replace(sampling, n=1, seed=answer.seed))
        assert (alone.token_ids, alone.logprobs) == (answer.token_ids, answer.logprobs)


def test_several_constrained_answers_each_keep_the_form(llm: LLM) -> None:
    sampling = SamplingParams(
        max_tokens=40, temperature=1.5, seed=1, n=4, logprobs=1, constraint=Constraint.regex("[0-9]{3}")
    )
    [result] = llm.generate("hello", sampling)
    assert all(len(answer.text) == 3 and answer.text.isdigit() for answer in result.answers)
    for answer in result.answers:
        assert len(answer.logprobs or ()) == len(answer.token_ids)


@pytest.mark.models
def test_a_real_model_is_close_to_its_float_arithmetic(smollm2_path: Path) -> None:
    """Activations are quantised natively, so that single values differ; their mean hardly does."""
    text = "The capital of France is Paris, and the capital of Italy is Rome. Water boils at 100 degrees."
    with LLM(smollm2_path, config=EngineConfig(max_model_len=256)) as llm:
        [result] = llm.generate(text, SamplingParams(max_tokens=0, prompt_logprobs=5))
    ids = [entry.token_id for entry in result.prompt_logprobs or ()]
    exact = float_logprobs(smollm2_path, ids)
    found = np.array(values(result.prompt_logprobs))
    differences = found - exact[np.arange(len(found)), ids[1:]]
    print(
        f"{len(found)} tokens, mean difference {differences.mean():.4f}, largest {abs(differences).max():.3f}"
    )
    assert abs(differences.mean()) < 0.05
    assert abs(differences).max() < 0.5
    likeliest = [entry.top[0].token_id for entry in (result.prompt_logprobs or ())[1:]]
    assert np.mean(likeliest == exact.argmax(axis=1)) > 0.9
