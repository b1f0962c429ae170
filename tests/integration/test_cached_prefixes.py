"""The prefix cache changes what is computed and never what is answered: on the real models, to the bit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ferrum import LLM, SamplingParams
from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import UnusableSavedPrefix
from ferrum.core.events import Event, StepRan
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.request import InferenceRequest, InferenceResult, TokenPrompt

pytestmark = pytest.mark.models
BLOCK = 32
Prompt = tuple[int, ...]
GREEDY = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)


class Bench:
    """An engine with an observer, and the door that tests use. Closed by a with-statement."""

    def __init__(
        self,
        model: Path,
        *,
        prefix_cache: bool = True,
        kv_dtype: KvDtype = KvDtype.F16,
        context: int = 4096,
        max_running_requests: int = 16,
    ) -> None:
        config = EngineConfig(
            max_model_len=context,
            kv_dtype=kv_dtype,
            logit_digests=True,
            prefix_cache=prefix_cache,
            scheduler=SchedulerConfig(max_running_requests=max_running_requests),
        )
        builder = EngineBuilder(config).with_options({"model_path": str(model)}).with_observer(self)
        self.num_prefill_tokens = 0
        self.engine = builder.build()
        self._llm = LLM.over(self.engine)

    def on(self, event: Event) -> None:
        if isinstance(event, StepRan):
            self.num_prefill_tokens += event.num_prefill_tokens

    def together(
        self, prompts: list[Prompt], sampling: SamplingParams | None = None
    ) -> list[InferenceResult]:
        return self._llm.generate(prompts, sampling or GREEDY)

    def alone(self, prompt: Prompt, sampling: SamplingParams | None = None) -> InferenceResult:
        return self._llm.generate(prompt, sampling or GREEDY)[0]

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._llm.close()


def evidence(result: InferenceResult) -> tuple[object, ...]:
    """What must be equal: ids, the logits' bits at every generated position, text and end."""
    assert len(result.logit_digests) == len(result.token_ids) > 0
    return (result.token_ids, result.logit_digests, result.text, result.finish_reason)


def ids(length: int, seed: int) -> Prompt:
    return tuple(int(each) for each in np.random.default_rng(seed).integers(100, 40_000, length))


def prompts_that_part(common: Prompt) -> list[Prompt]:
    """Prompts that share ``common`` up to each place around the ends of its blocks."""
    edges = {max(1, edge + near) for edge in (0, BLOCK, 2 * BLOCK, 4 * BLOCK) for near in (-1, 0, 1)}
    prompts = [(*common[:edge], *ids(7, 1000 + edge)) for edge in sorted(edges)]
    whole = [common[:length] for length in (BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK)]
    return [common, *prompts, *whole]


@pytest.fixture(scope="module")
def shared_prompts() -> list[Prompt]:
    return prompts_that_part(ids(5 * BLOCK, seed=1))


def check_cold_hot_and_evicting(model: Path, prompts: list[Prompt], kv_dtype: KvDtype) -> None:
    with Bench(model, prefix_cache=False, kv_dtype=kv_dtype) as bench:
        cold = {prompt: evidence(bench.alone(prompt)) for prompt in prompts}
    with Bench(model, kv_dtype=kv_dtype) as bench:
        together = bench.together(prompts)
        assert [evidence(result) for result in together] == [cold[prompt] for prompt in prompts]
        for prompt in prompts:
            hot = bench.alone(prompt)
            assert evidence(hot) == cold[prompt]
            assert hot.usage.cached_tokens == len(prompt) - 1
    # A pool of one context, so that what is kept has to go all the time.
    with Bench(model, kv_dtype=kv_dtype, context=192, max_running_requests=1) as bench:
        for order in (prompts, prompts[::-1], prompts):
            for prompt in order:
                assert evidence(bench.alone(prompt)) == cold[prompt]
        assert bench.engine.status().prefix_cache.evictions > 0


@pytest.mark.parametrize("kv_dtype", list(KvDtype))
def test_smollm2_answers_the_same_cold_hot_and_evicting(
    smollm2_path: Path, shared_prompts: list[Prompt], kv_dtype: KvDtype
) -> None:
    check_cold_hot_and_evicting(smollm2_path, shared_prompts, kv_dtype)


def test_gemma3_answers_the_same_cold_hot_and_evicting(
    gemma3_path: Path, shared_prompts: list[Prompt]
) -> None:
    check_cold_hot_and_evicting(gemma3_path, shared_prompts[:6], KvDtype.F16)


def test_gemma3_shares_a_prefix_longer_than_its_window(gemma3_path: Path) -> None:
    common = ids(700, seed=2)
    prompts = [(*common, 500 + number, 7) for number in range(3)]
    with Bench(gemma3_path, prefix_cache=False) as bench:
        cold = [evidence(bench.alone(prompt)) for prompt in prompts]
    with Bench(gemma3_path) as bench:
        assert [evidence(result) for result in bench.together(prompts)] == cold
        assert bench.num_prefill_tokens == len(common) + 2 * len(prompts)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[Bench]:
    with Bench(smollm2_path) as bench:
        yield bench


def test_thirty_two_requests_compute_a_common_prefix_once(smollm2: Bench) -> None:
    common = ids(2000, seed=3)
    prompts = [(*common, *ids(8, 100 + number)) for number in range(32)]
    before = smollm2.num_prefill_tokens
    results = smollm2.together(prompts)
    assert smollm2.num_prefill_tokens - before <= 1.1 * len(common) + 32 * 8
    assert sorted(result.usage.cached_tokens for result in results) == [0, *[len(common)] * 31]
    assert evidence(smollm2.alone(prompts[7])) == evidence(results[7])


async def test_an_aborted_prefill_leaves_nothing_but_what_it_computed(smollm2_path: Path) -> None:
    prompt = ids(1500, seed=8)
    request = InferenceRequest("a", TokenPrompt(prompt), GREEDY)
    with Bench(smollm2_path, prefix_cache=False) as bench:
        cold = evidence(bench.alone(prompt))
    with Bench(smollm2_path) as bench:
        leaving = asyncio.create_task(bench.engine.infer(request))
        while bench.num_prefill_tokens == 0:
            await asyncio.sleep(0.005)
        leaving.cancel()
        await asyncio.wait([leaving])
        after = await asyncio.to_thread(bench.alone, prompt)
    assert evidence(after) == cold
    assert 0 < after.usage.cached_tokens < len(prompt) - 1


def test_the_next_turn_computes_what_is_new_in_it(smollm2: Bench) -> None:
    prompt = ids(100, seed=4)
    answer = smollm2.alone(prompt, SamplingParams(max_tokens=50, temperature=0.0, ignore_eos=True)).token_ids
    # All but the last token of the answer was computed with it.
    assert smollm2.alone((*prompt, *answer, *ids(9, seed=5))).usage.cached_tokens == 149


def test_a_saved_prefix_answers_the_same_in_another_process_life(smollm2_path: Path, tmp_path: Path) -> None:
    path, common = tmp_path / "rules.kv", ids(200, seed=6)
    asked = (*common, *ids(5, seed=7))
    with Bench(smollm2_path) as bench:
        cold = evidence(bench.alone(asked))
        bench.engine.pins.pin("rules", TokenPrompt(common))
        bench.engine.pins.save("rules", path)
    with Bench(smollm2_path) as bench:
        bench.engine.pins.restore("rules", path)
        restored = bench.alone(asked)
        assert evidence(restored) == cold
        assert restored.usage.cached_tokens == 192
        assert bench.num_prefill_tokens == 13
    with (
        Bench(smollm2_path, kv_dtype=KvDtype.INT8) as bench,
        pytest.raises(UnusableSavedPrefix, match="another model"),
    ):
        bench.engine.pins.restore("rules", path)
