import asyncio

from asgi_client import post, start
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.core.request import TextPrompt, TokenPrompt

PATH = "/v1/completions"


async def test_whole_answer_is_a_text_completion_of_at_most_16_tokens(
    app: Starlette, engine: ScriptedEngine
) -> None:
    answer = await post(app, PATH, {"model": "tiny", "prompt": "say"})

    assert answer.json["object"] == "text_completion"
    assert answer.json["choices"] == [
        {"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop"}
    ]
    assert engine.requests[0].usual_max_tokens == 16
    assert engine.requests[0].sampling.max_tokens is None
    assert engine.requests[0].prompt == TextPrompt("say")


async def test_every_prompt_has_its_choice_in_order_and_usage_is_summed(
    app: Starlette, engine: ScriptedEngine
) -> None:
    answer = await post(app, PATH, {"prompt": ["A", "BB", "CCC"]})

    assert [choice["index"] for choice in answer.json["choices"]] == [0, 1, 2]
    assert [request.prompt for request in engine.requests] == [
        TextPrompt("A"),
        TextPrompt("BB"),
        TextPrompt("CCC"),
    ]
    assert answer.json["usage"]["prompt_tokens"] == 9


async def test_token_ids_are_one_prompt_and_lists_of_them_several(
    app: Starlette, engine: ScriptedEngine
) -> None:
    await post(app, PATH, {"prompt": [1, 2]})
    await post(app, PATH, {"prompt": [[3], [4, 5]]})

    assert [request.prompt for request in engine.requests] == [
        TokenPrompt((1, 2)),
        TokenPrompt((3,)),
        TokenPrompt((4, 5)),
    ]


async def test_stream_of_several_prompts_finishes_each_choice_once(app: Starlette) -> None:
    content = {"prompt": ["A", "B", "C"], "stream": True, "stream_options": {"include_usage": True}}
    answer = await post(app, PATH, content)

    choices = [choice for chunk in answer.objects for choice in chunk["choices"]]
    for index in range(3):
        mine = [choice for choice in choices if choice["index"] == index]
        assert "".join(choice["text"] for choice in mine) == "Hello"
        assert [choice["finish_reason"] for choice in mine].count("stop") == 1
    assert answer.objects[-1]["usage"]["completion_tokens"] == 6
    assert answer.events.count("[DONE]") == 1


async def test_failure_of_one_prompt_ends_the_stream_and_cancels_the_others(
    app: Starlette, engine: ScriptedEngine
) -> None:
    engine.failure = RuntimeError("broken")
    answer = await post(app, PATH, {"prompt": ["A", "B"], "stream": True})

    assert answer.objects[-1]["error"]["type"] == "internal_server_error"
    assert "[DONE]" not in answer.events
    assert engine.num_running == 0


async def test_all_prompts_are_cancelled_when_the_client_leaves(
    app: Starlette, engine: ScriptedEngine
) -> None:
    engine.released.clear()
    for is_streamed in (False, True):
        call = start(app, PATH, {"prompt": ["A", "B", "C"], "stream": is_streamed})
        while engine.num_running < 3:
            await asyncio.sleep(0.001)
        call.leave()
        await call.finished()
        assert engine.num_running == 0
    assert engine.num_cancelled == 6
