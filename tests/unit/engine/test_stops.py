"""Where an answer ends and what is shown of its end, streamed and whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from engine_factory import ask, build_workshop, running

from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import InvalidRequest
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor, scripted
from text_corpus import stop_texts

EOS, BOS = ByteTokenizer.EOS_ID, ByteTokenizer.BOS_ID


async def stream(
    engine: ContinuousBatchEngine, request: InferenceRequest
) -> tuple[list[str], InferenceResult]:
    chunks = [chunk async for chunk in engine.infer_stream(request)]
    result = chunks[-1].result
    assert result is not None
    return [chunk.text for chunk in chunks[:-1]], result


async def answer(tokens: Sequence[int], **wishes: object) -> InferenceResult:
    """Asks both doors, which must agree; ``wishes`` as for ``ask``."""
    executor = ScriptedExecutor(choose=scripted({"whole": tokens, "stream": tokens}))
    async with running(build_workshop(executor)) as workshop:
        whole = await workshop.engine.infer(ask("whole", max_tokens=60, **wishes))
        pieces, streamed = await stream(workshop.engine, ask("stream", max_tokens=60, **wishes))
    assert "".join(pieces) == streamed.text == whole.text
    for name in ("token_ids", "finish_reason", "stop_reason"):
        assert getattr(whole, name) == getattr(streamed, name)
    assert whole.usage.completion_tokens == streamed.usage.completion_tokens == len(whole.token_ids)
    return whole


async def test_every_piece_of_a_text_as_stop_shows_exactly_what_is_before_it() -> None:
    texts = stop_texts()
    answers, expected, requests = {}, {}, []
    for number, text in enumerate(texts):
        pieces = sorted({text[i : i + n] for n in range(2, 13) for i in range(len(text) - n + 1)})
        for index, stop in enumerate(pieces[number % 7 :: 31]):
            for door in ("whole", "stream"):
                name = f"{number}-{index}-{door}"
                answers[name] = [*text.encode(), EOS]
                expected[name] = (text[: text.index(stop)], stop)
                requests.append(ask(name, prompt="x", max_tokens=120, stop=(stop,)))
    assert len(requests) > 150
    config = EngineConfig(scheduler=SchedulerConfig(max_waiting_requests=len(requests)))
    async with running(build_workshop(ScriptedExecutor(choose=scripted(answers)), config=config)) as workshop:
        whole = asyncio.gather(*(workshop.engine.infer(each) for each in requests[::2]))
        streamed = asyncio.gather(*(stream(workshop.engine, each) for each in requests[1::2]))
        results = {result.request_id: (result.text, result) for result in await whole}
        results |= {result.request_id: ("".join(pieces), result) for pieces, result in await streamed}
    for name, (text, result) in results.items():
        assert (text, result.text) == (expected[name][0], expected[name][0])
        assert (result.finish_reason, result.stop_reason) == (FinishReason.STOP, expected[name][1])


@pytest.mark.parametrize("shows", [False, True])
async def test_a_stop_string_is_shown_only_when_it_is_to_be(shows: bool) -> None:
    result = await answer([*b"one two three", EOS], stop=(" tw", "hree"), include_stop_str_in_output=shows)
    assert result.text == ("one tw" if shows else "one")
    assert (result.finish_reason, result.stop_reason) == (FinishReason.STOP, " tw")
    assert bytes(result.token_ids) == b"one tw"


@pytest.mark.parametrize("shows", [False, True])
async def test_a_stop_token_ends_the_answer_and_its_text_is_shown_only_when_it_is_to_be(shows: bool) -> None:
    result = await answer([*b"one;two", EOS], stop_token_ids=(ord(";"),), include_stop_str_in_output=shows)
    assert result.text == ("one;" if shows else "one")
    assert (result.finish_reason, result.stop_reason) == (FinishReason.STOP, ord(";"))
    assert bytes(result.token_ids) == b"one;"


async def test_the_models_own_end_has_no_stop_reason() -> None:
    result = await answer([*b"fine", EOS], stop=("never",), stop_token_ids=(7,))
    assert (result.text, result.finish_reason, result.stop_reason) == ("fine", FinishReason.EOS, None)


async def test_an_end_token_that_the_caller_names_is_the_callers_stop() -> None:
    result = await answer([*b"fine", EOS], stop_token_ids=(EOS,), ignore_eos=True)
    assert (result.text, result.finish_reason, result.stop_reason) == ("fine", FinishReason.STOP, EOS)


async def test_a_control_token_is_a_stop_by_its_text() -> None:
    result = await answer([*b"fine", BOS, *b"more", EOS], stop=("<bos>",))
    assert (result.text, result.finish_reason, result.stop_reason) == ("fine", FinishReason.STOP, "<bos>")


async def test_text_held_for_a_stop_that_never_comes_is_shown_at_every_end() -> None:
    for ends, reason in (([EOS], FinishReason.EOS), ([ord(";")], FinishReason.STOP)):
        result = await answer([*b"please wai", *ends], stop=("please wait",), stop_token_ids=(ord(";"),))
        assert (result.text, result.finish_reason) == ("please wai", reason)


async def test_a_stop_string_complete_before_a_stop_token_wins() -> None:
    result = await answer([*b"abc;", EOS], stop=("abcd", "bc"), stop_token_ids=(ord(";"),))
    assert (result.text, result.finish_reason, result.stop_reason) == ("a", FinishReason.STOP, "bc")


@pytest.mark.parametrize("shows_stop", [False, True])
async def test_control_tokens_are_written_out_on_request(shows_stop: bool) -> None:
    tokens = [*b"a", BOS, *b"b", EOS]
    assert (await answer(tokens)).text == "ab"
    shown = await answer(tokens, skip_special_tokens=False, include_stop_str_in_output=shows_stop)
    assert shown.text == ("a<bos>b<eos>" if shows_stop else "a<bos>b")
    assert shown.finish_reason is FinishReason.EOS


async def test_a_stop_string_is_found_in_control_tokens_that_are_written_out() -> None:
    result = await answer([*b"a", BOS, *b"b", EOS], skip_special_tokens=False, stop=("os>b",))
    assert (result.text, result.stop_reason) == ("a<b", "os>b")


async def test_a_whole_character_is_never_cut_by_a_stop_inside_it() -> None:
    result = await answer([*"naïve 🙂!".encode(), EOS], stop=("🙂",))
    assert (result.text, result.stop_reason) == ("naïve ", "🙂")


async def test_a_broken_character_before_a_stop_token_is_one_replacement() -> None:
    result = await answer([*b"a", *"🙂".encode()[:2], ord(";")], stop_token_ids=(ord(";"),))
    assert result.text == "a\ufffd"


async def test_a_stop_token_outside_the_vocabulary_is_refused_and_disturbs_nobody() -> None:
    executor = ScriptedExecutor(choose=scripted({"good": [*b"fine", EOS]}))
    async with running(build_workshop(executor)) as workshop:
        good = asyncio.create_task(workshop.engine.infer(ask("good", max_tokens=20)))
        with pytest.raises(InvalidRequest, match="stop_token_ids"):
            await workshop.engine.infer(ask("bad", stop_token_ids=(258,)))
        assert (await good).text == "fine"


async def test_nothing_ends_an_answer_among_its_first_min_tokens() -> None:
    tokens = [*b"ab;ab;ab;", EOS]
    free = await answer(tokens, stop=("b;",))
    assert (free.text, len(free.token_ids)) == ("a", 3)
    late = await answer(tokens, stop=("b;",), min_tokens=3)
    assert (late.text, len(late.token_ids)) == ("ab;a", 6)
    across = await answer(tokens, stop=("b;a",), min_tokens=3)
    assert (across.text, len(across.token_ids)) == ("a", 4)


async def test_every_token_is_decoded_once_however_long_the_answer() -> None:
    class Counting(ByteTokenizer):
        num_decoded = 0

        def token_bytes(self, token_id: int) -> bytes:
            self.num_decoded += 1
            return super().token_bytes(token_id)

    text = "naïve 🙂 " * 20
    tokenizer = Counting()
    executor = ScriptedExecutor(choose=scripted({"a": [*text.encode(), EOS]}))
    async with running(build_workshop(executor, tokenizer=tokenizer)) as workshop:
        pieces, result = await stream(workshop.engine, ask("a", "x", max_tokens=None, stop=("never",)))
    assert "".join(pieces) == text
    assert tokenizer.num_decoded == len(result.token_ids) - 1
