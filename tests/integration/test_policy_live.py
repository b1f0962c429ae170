"""Token policies and completion boundaries on real models."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrum import LLM, EngineConfig, SamplingParams
from ferrum.core.completion_boundary import AfterDelimiterAndPayload
from ferrum.core.request import FinishReason
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod
from ferrum.core.token_policy_level import TokenPolicyLevel

pytestmark = [pytest.mark.models, pytest.mark.slow]

OFF, STRICT = TokenPolicyLevel.OFF, TokenPolicyLevel.STRICT
PROMPTS = ["The capital of France is", "def main():\n", "🙂🙃 é 漢字"]


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[dict[TokenPolicyLevel, LLM]]:
    yield from _loaded(smollm2_path)


@pytest.fixture(scope="module")
def gemma3(gemma3_path: Path) -> Iterator[dict[TokenPolicyLevel, LLM]]:
    yield from _loaded(gemma3_path)


def _loaded(path: Path) -> Iterator[dict[TokenPolicyLevel, LLM]]:
    llms = {
        level: LLM(path, config=EngineConfig(max_model_len=512, token_policy=level))
        for level in (OFF, STRICT)
    }
    yield llms
    for llm in llms.values():
        llm.close()


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_the_strict_policy_changes_no_greedy_answer_of_a_healthy_model(
    model: str, request: pytest.FixtureRequest
) -> None:
    llms = request.getfixturevalue(model)
    greedy = SamplingParams(max_tokens=20, temperature=0)
    free = [result.token_ids for result in llms[OFF].generate(PROMPTS, greedy)]
    assert [result.token_ids for result in llms[STRICT].generate(PROMPTS, greedy)] == free


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_a_strict_policy_leaves_no_broken_text_at_any_temperature(
    model: str, request: pytest.FixtureRequest
) -> None:
    llms = request.getfixturevalue(model)
    wild = [SamplingParams(max_tokens=64, temperature=20.0, seed=seed) for seed in range(8)]
    texts = {
        level: [result.text for result in llms[level].generate(["x"] * len(wild), wild)]
        for level in (OFF, STRICT)
    }
    assert any("\ufffd" in text for text in texts[OFF]), "the test would show nothing"
    # A character that the limit cut off is one replacement at the very end.
    assert not any("\ufffd" in text[:-1] for text in texts[STRICT])


def test_drafts_change_no_token_under_a_strict_policy_and_a_boundary(
    smollm2: dict[TokenPolicyLevel, LLM], smollm2_path: Path
) -> None:
    prompts = ["one two three one two three one two", "x = [1, 2, 3, 1, 2, 3, 1, 2"]
    boundary = AfterDelimiterAndPayload(" three")
    wishes = [
        SamplingParams(max_tokens=40, temperature=temperature, seed=3, completion_boundary=boundary)
        for temperature in (0.0, 0.8)
    ]
    config = EngineConfig(
        max_model_len=512, token_policy=STRICT, speculation=SpeculationConfig(SpeculationMethod.NGRAM)
    )
    with LLM(smollm2_path, config=config) as drafting:
        for sampling in wishes:
            drafted = drafting.generate(prompts, sampling)
            plain = smollm2[STRICT].generate(prompts, sampling)
            assert [each.token_ids for each in drafted] == [each.token_ids for each in plain]
            assert sum(each.draft_use.drafted for each in drafted) > 0


def test_a_model_ends_only_after_the_boundary(smollm2: dict[TokenPolicyLevel, LLM]) -> None:
    llm = smollm2[OFF]
    question = [{"role": "user", "content": "Say hi."}]
    free = llm.chat(question, SamplingParams(max_tokens=60, temperature=0))[0]
    assert free.finish_reason is FinishReason.EOS
    # A letter that the answer does not have before its end: the model must go on until it has written it.
    delimiter = next(letter for letter in "zqxjkvw" if letter not in free.text)
    bound = llm.chat(
        question,
        SamplingParams(
            max_tokens=200, temperature=0, completion_boundary=AfterDelimiterAndPayload(delimiter)
        ),
    )[0]
    assert bound.text.startswith(free.text)
    assert bound.finish_reason is FinishReason.LENGTH or bound.text.partition(delimiter)[2].strip()
    assert len(bound.token_ids) > len(free.token_ids)
