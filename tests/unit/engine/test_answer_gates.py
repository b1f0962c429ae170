"""Token policy and completion boundary along whole answers, from the request to the executor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from engine_factory import Workshop, ask, build_workshop, running

from ferrum.core.completion_boundary import AfterDelimiterAndPayload, Envelope
from ferrum.core.config import EngineConfig
from ferrum.core.errors import ForbiddenToken, InvalidRequest, MalformedAnswer
from ferrum.core.request import FinishReason
from ferrum.core.step import SamplingInstruction
from ferrum.core.token_gate import is_allowed
from ferrum.core.token_policy_level import TokenPolicyLevel
from ferrum.execution.executor import ExecutorCapacity
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import History, ScriptedExecutor, scripted

EOS, BOS = ByteTokenizer.EOS_ID, ByteTokenizer.BOS_ID
THINK = AfterDelimiterAndPayload("</t>")
CAPACITY = ExecutorCapacity(num_blocks=64, block_tokens=4, context_length=256, vocabulary_size=300)


def likes(wishes: Sequence[Sequence[int]]) -> ScriptedExecutor:
    """At the answer's nth token the first of ``wishes[n]`` that the mask allows."""

    def choose(request_id: str, history: History, sampling: SamplingInstruction) -> int:
        place = min(len(history) - 1, len(wishes) - 1)  # the prompt is one token
        return next(token_id for token_id in wishes[place] if is_allowed(sampling.mask, token_id))

    return ScriptedExecutor(choose=choose, capacity=CAPACITY)


def workshop_of(executor: ScriptedExecutor, level: TokenPolicyLevel) -> Workshop:
    return build_workshop(executor, config=EngineConfig(token_policy=level, prefix_cache=False))


@pytest.mark.parametrize(
    ("level", "text"),
    [(TokenPolicyLevel.OFF, ""), (TokenPolicyLevel.VOCABULARY, "a"), (TokenPolicyLevel.STRICT, "a")],
)
async def test_ids_beyond_the_vocabulary_are_kept_out_unless_the_policy_is_off(
    level: TokenPolicyLevel, text: str
) -> None:
    async with running(workshop_of(likes([[299, ord("a")], [EOS]]), level)) as workshop:
        result = await workshop.engine.infer(ask("a", "x"))
    assert result.text == text
    assert (result.token_ids[0] == 299) == (level is TokenPolicyLevel.OFF)


@pytest.mark.parametrize(
    ("level", "token_id"), [(TokenPolicyLevel.VOCABULARY, BOS), (TokenPolicyLevel.STRICT, ord("a"))]
)
async def test_a_beginning_token_is_kept_out_of_answers_only_when_the_policy_is_strict(
    level: TokenPolicyLevel, token_id: int
) -> None:
    async with running(workshop_of(likes([[BOS, ord("a")], [EOS]]), level)) as workshop:
        result = await workshop.engine.infer(ask("a", "x"))
        freed = await workshop.engine.infer(ask("b", "x", control_texts=("<bos>",)))
        stopped = await workshop.engine.infer(ask("c", "x", stop=("<bos>",)))
    assert result.token_ids == (token_id, EOS)
    assert freed.token_ids == (BOS, EOS)
    assert (stopped.token_ids, stopped.stop_reason) == ((BOS,), "<bos>")


async def test_a_strict_policy_lets_characters_be_finished() -> None:
    smile = "🙂".encode()
    wishes = [[0x82, *smile[:1]], [ord("a"), EOS, smile[1]], [EOS, smile[2]], [0xFF, smile[3]], [EOS]]
    async with running(workshop_of(likes(wishes), TokenPolicyLevel.STRICT)) as workshop:
        result = await workshop.engine.infer(ask("a", "x"))
    assert result.text == "🙂"
    assert result.finish_reason is FinishReason.EOS


async def test_what_may_not_come_first_may_come_later() -> None:
    async with running(workshop_of(likes([[7, 8]]), TokenPolicyLevel.VOCABULARY)) as workshop:
        result = await workshop.engine.infer(
            ask("a", "x", max_tokens=3, forbidden_first_texts=("\x07", "no single token"))
        )
    assert result.token_ids == (8, 7, 7)


async def test_a_token_against_the_mask_fails_its_request_alone() -> None:
    executor = ScriptedExecutor(
        choose=scripted({"bad": [*b"ok", 299], "good": [*b"fine", EOS]}), capacity=CAPACITY
    )
    async with running(workshop_of(executor, TokenPolicyLevel.VOCABULARY)) as workshop:
        bad, good = await asyncio.gather(
            *(workshop.engine.infer(ask(name)) for name in ("bad", "good")), return_exceptions=True
        )
    assert isinstance(bad, ForbiddenToken)
    assert bad.token_id == 299
    assert not isinstance(good, BaseException)
    assert good.text == "fine"


async def test_the_model_may_not_end_before_the_boundary() -> None:
    wishes = [[EOS, letter] for letter in b"hm</t> "] + [[EOS, ord("A")], [EOS]]
    for boundary, text in ((THINK, "hm</t> A"), (None, "")):
        sampling = {} if boundary is None else {"completion_boundary": boundary}
        async with running(workshop_of(likes(wishes), TokenPolicyLevel.VOCABULARY)) as workshop:
            result = await workshop.engine.infer(ask("a", "x", max_tokens=20, **sampling))
        assert (result.text, result.finish_reason) == (text, FinishReason.EOS)
        assert result.usage.completion_tokens == len(text) + 1


async def test_stops_and_the_limit_end_an_answer_before_the_boundary() -> None:
    async with running(workshop_of(likes([[EOS, ord("a")]]), TokenPolicyLevel.VOCABULARY)) as workshop:
        cut = await workshop.engine.infer(ask("a", "x", max_tokens=6, completion_boundary=THINK))
        text = await workshop.engine.infer(
            ask("b", "x", max_tokens=6, completion_boundary=THINK, stop=("aaa",))
        )
        token = await workshop.engine.infer(
            ask("c", "x", max_tokens=6, completion_boundary=THINK, stop_token_ids=(ord("a"),))
        )
        own = await workshop.engine.infer(
            ask("d", "x", max_tokens=6, completion_boundary=THINK, stop_token_ids=(EOS,))
        )
    assert (cut.text, cut.finish_reason) == ("aaaaaa", FinishReason.LENGTH)
    assert (text.finish_reason, token.finish_reason) == (FinishReason.STOP, FinishReason.STOP)
    # The caller's stop is never held back, though the model ends by it, too.
    assert (own.token_ids, own.finish_reason, own.stop_reason) == ((EOS,), FinishReason.STOP, EOS)


async def test_an_end_against_a_closed_boundary_is_an_error() -> None:
    executor = ScriptedExecutor(choose=scripted({"a": [*b"hm", EOS]}))
    async with running(build_workshop(executor)) as workshop:
        with pytest.raises(ForbiddenToken, match="token 256"):
            await workshop.engine.infer(ask("a", completion_boundary=THINK))


async def test_an_envelope_too_many_ends_the_stream_with_an_error() -> None:
    boundary = AfterDelimiterAndPayload("#", Envelope("<c", ">", max_envelopes=1))
    executor = ScriptedExecutor(choose=scripted({"a": [*b"#<c><c>", EOS]}))
    async with running(build_workshop(executor)) as workshop:
        stream = await workshop.engine.open_stream(ask("a", completion_boundary=boundary))
        shown = ""
        while len(shown) < len("#<c><"):
            shown += (await anext(stream)).text
        with pytest.raises(MalformedAnswer, match="envelope 2"):
            await anext(stream)
    assert shown == "#<c><"


async def test_a_boundary_that_cannot_be_kept_is_refused_before_any_work() -> None:
    async with running(build_workshop()) as workshop:
        with pytest.raises(InvalidRequest, match="completion_boundary"):
            await workshop.engine.infer(ask(max_tokens=4, completion_boundary=THINK))
        assert workshop.executor.num_steps == 0


async def test_most_requests_have_no_mask_at_all() -> None:
    masks = []

    def choose(request_id: str, history: History, sampling: SamplingInstruction) -> int:
        masks.append(sampling.mask)
        return EOS

    async with running(build_workshop(ScriptedExecutor(choose=choose))) as workshop:
        await workshop.engine.infer(ask(stop=("x",), temperature=1.0))
    assert masks == [None]
