from __future__ import annotations

from ferrum.assembly.stub_executor import StubExecutor
from ferrum.assembly.stub_tokenizer import StubTokenizer
from ferrum.core.step import SamplingInstruction, SequencePart, StepPlan
from ferrum.execution.executor import ResourceAuthority


def _chosen(executor: StubExecutor, temperature: float) -> set[int]:
    parts = tuple(
        SequencePart(f"r{seed}", (1,), 0, (seed,), (SamplingInstruction(temperature, 0, 1.0, 0.0, seed, 1),))
        for seed in range(8)
    )
    return {token.token_id for token in executor.execute(StepPlan(parts)).tokens}


def test_words_become_their_numbers_and_numbers_read_as_tokens() -> None:
    tokenizer = StubTokenizer(vocab_size=3)
    assert tokenizer.encode_prompt("one  two\nthree four") == [0, 1, 2, 0]
    assert tokenizer.encode_prompt("") == [0]
    assert b"".join(map(tokenizer.token_bytes, [7, 0])) == b" token_7 token_0"


def test_the_stub_vocabulary_has_no_special_tokens() -> None:
    tokenizer = StubTokenizer()
    assert tokenizer.vocab_size == 32_000
    assert (tokenizer.eos_ids, tokenizer.control_ids) == ((), ())
    assert tokenizer.token_id("<eos>") == tokenizer.token_id("anything") == 0


def test_every_logit_of_the_stub_executor_is_equal() -> None:
    executor = StubExecutor(num_sequences=2)
    assert _chosen(executor, temperature=0.0) == {0}
    assert len(_chosen(executor, temperature=1.0)) == 8
    assert executor.resource_authority is ResourceAuthority.ENGINE_MANAGED
    assert executor.capacity.context_length == 2048
