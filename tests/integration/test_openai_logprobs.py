"""Log-probabilities and several answers as the official client gets them from the server's process."""

import math
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from server_process import ServerProcess, scripted_server

PROMPT = "a café 🙂 with characters of several bytes, longer than a block of the cache"
MESSAGES: Any = [{"role": "user", "content": PROMPT}]
PROMPT_BYTES = PROMPT.encode()


@pytest.fixture(scope="module")
def running() -> Iterator[ServerProcess]:
    with scripted_server(latency_s=0.0) as process:
        yield process
        assert process.process.poll() is None


@pytest.fixture(scope="module")
def client(running: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=running.api, api_key="none", max_retries=0) as made:
        yield made


def complete(client: openai.OpenAI, **fields: Any) -> Any:
    fields = {"prompt": PROMPT, "max_tokens": 6, "temperature": 1, "seed": 4, **fields}
    return client.completions.create(model="tiny", **fields)


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    fields = {"messages": MESSAGES, "max_tokens": 6, "temperature": 1, "seed": 4, **fields}
    return client.chat.completions.create(model="tiny", **fields)


def joined_stream(chunks: Any) -> dict[int, dict[str, list[Any]]]:
    """The columns of a streamed completion's log-probabilities, and its texts and ends, by index."""
    found: dict[int, dict[str, list[Any]]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            columns = found.setdefault(choice.index, {"text": [], "ends": []})
            columns["text"].append(choice.text)
            columns["ends"] += [choice.finish_reason] if choice.finish_reason else []
            for name, values in (choice.logprobs.model_dump() if choice.logprobs else {}).items():
                columns.setdefault(name, []).extend(values)
    return found


def test_a_chat_has_an_entry_for_each_token_with_its_bytes_and_the_likeliest_ones(
    client: openai.OpenAI,
) -> None:
    answer = chat(client, logprobs=True, top_logprobs=20)
    choice = answer.choices[0]
    entries = choice.logprobs.content
    assert len(entries) == answer.usage.completion_tokens == 6
    assert "".join(entry.token for entry in entries) == choice.message.content
    assert bytes(byte for entry in entries for byte in entry.bytes) == choice.message.content.encode()
    for entry in entries:
        logprobs = [top.logprob for top in entry.top_logprobs]
        assert len(logprobs) == 20
        assert logprobs == sorted(logprobs, reverse=True)
        assert all(-math.inf < logprob <= 0 for logprob in (entry.logprob, *logprobs))
        for top in entry.top_logprobs:
            if top.bytes is None:  # a control token has a name, if any, and no bytes
                continue
            assert len(top.bytes) == 1
            is_text = top.bytes[0] < 128
            assert top.token == (chr(top.bytes[0]) if is_text else f"\\x{top.bytes[0]:02x}")
    assert choice.logprobs.refusal is None


def test_without_top_logprobs_a_chat_has_the_tokens_alone(client: openai.OpenAI) -> None:
    entries = chat(client, logprobs=True).choices[0].logprobs.content
    assert [entry.top_logprobs for entry in entries] == [[]] * 6
    assert chat(client, logprobs=False, top_logprobs=0).choices[0].logprobs is None


@pytest.mark.parametrize("fields", [{}, {"stop": ["e", "q"]}, {"n": 3}])
def test_a_streamed_chat_has_the_entries_of_the_whole_one(client: openai.OpenAI, fields: Any) -> None:
    whole = chat(client, logprobs=True, top_logprobs=3, max_tokens=30, **fields)
    chunks = list(chat(client, logprobs=True, top_logprobs=3, max_tokens=30, stream=True, **fields))
    for choice in whole.choices:
        own = [each for chunk in chunks for each in chunk.choices if each.index == choice.index]
        entries = [entry for each in own if each.logprobs for entry in each.logprobs.content]
        assert entries == choice.logprobs.content
        assert "".join(each.delta.content or "" for each in own) == choice.message.content
        assert [each.finish_reason for each in own if each.finish_reason] == [choice.finish_reason]
        assert [each.delta.role for each in own if each.delta.role] == ["assistant"]
        for each in own:
            if each.delta.content and each.logprobs and not fields.get("stop"):
                assert "".join(entry.token for entry in each.logprobs.content) == each.delta.content


def test_an_echoed_completion_covers_prompt_and_answer(client: openai.OpenAI) -> None:
    answer = complete(client, logprobs=2, echo=True)
    choice, usage = answer.choices[0], answer.usage
    found = choice.logprobs
    columns = (found.tokens, found.token_logprobs, found.top_logprobs, found.text_offset)
    assert {len(column) for column in columns} == {usage.prompt_tokens + usage.completion_tokens}
    assert usage.prompt_tokens == len(PROMPT_BYTES)
    assert choice.text.startswith(PROMPT)
    assert (found.token_logprobs[0], found.top_logprobs[0]) == (None, None)
    assert all(logprob <= 0 for logprob in found.token_logprobs[1:])
    # Every token stands where it says, and within a character where the character begins.
    data = choice.text.encode()
    for place, (token, offset) in enumerate(zip(found.tokens, found.text_offset, strict=True)):
        assert offset == len(data[:place].decode(errors="ignore"))
        is_text = data[place] < 128
        assert token == (chr(data[place]) if is_text else f"bytes:\\x{data[place]:02x}")
        assert not is_text or choice.text[offset] == token
    for token, logprob, top in list(zip(*columns[:3], strict=True))[1:]:
        assert top[token] == logprob
        assert 2 <= len(top) <= 3


def test_prompt_entries_depend_on_nothing_but_the_prompt(client: openai.OpenAI) -> None:
    whole = complete(client, logprobs=1, echo=True).choices[0].logprobs
    scored = complete(client, logprobs=1, echo=True, max_tokens=0)
    assert scored.choices[0].text == PROMPT
    assert scored.choices[0].finish_reason == "length"
    assert scored.usage.completion_tokens == 0
    num_tokens = len(PROMPT_BYTES)
    assert scored.choices[0].logprobs.token_logprobs == whole.token_logprobs[:num_tokens]
    ids = complete(client, prompt=list(PROMPT_BYTES), logprobs=1, echo=True, max_tokens=0)
    assert ids.choices[0] == scored.choices[0]


def test_no_tokens_and_nothing_else_is_an_empty_answer(client: openai.OpenAI) -> None:
    answer = complete(client, max_tokens=0)
    assert (answer.choices[0].text, answer.usage.completion_tokens) == ("", 0)
    assert complete(client, max_tokens=0, echo=True).choices[0].text == PROMPT


def test_zero_gives_the_chosen_tokens_alone(client: openai.OpenAI) -> None:
    found = complete(client, logprobs=0).choices[0].logprobs
    for token, logprob, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
        assert top == {token: logprob}


@pytest.mark.parametrize(
    "fields",
    [{}, {"echo": True}, {"echo": True, "max_tokens": 0}, {"n": 3, "echo": True}, {"stop": ["e", "q"]}],
)
def test_a_streamed_completion_joins_to_the_whole_one(client: openai.OpenAI, fields: Any) -> None:
    fields = {"logprobs": 2, "max_tokens": 20, **fields}
    whole = complete(client, **fields)
    found = joined_stream(complete(client, stream=True, **fields))
    assert sorted(found) == list(range(len(whole.choices)))
    for choice in whole.choices:
        columns = found[choice.index]
        assert "".join(columns.pop("text")) == choice.text
        assert columns.pop("ends") == [choice.finish_reason]
        assert columns == choice.logprobs.model_dump()
        assert choice.logprobs.text_offset == sorted(choice.logprobs.text_offset)
        assert choice.logprobs.text_offset[-1] <= len(choice.text)


def test_choices_are_those_of_each_prompt_in_order(client: openai.OpenAI) -> None:
    prompts = ["A", "BB", "CCC"]
    answer = complete(client, prompt=prompts, n=2, echo=True, logprobs=0)
    assert [choice.index for choice in answer.choices] == list(range(6))
    for choice in answer.choices:
        assert choice.text.startswith(prompts[choice.index // 2])
    assert answer.usage.prompt_tokens == 6
    assert answer.usage.completion_tokens == 36
    chunks = list(
        complete(client, prompt=prompts, n=2, echo=True, stream=True, stream_options={"include_usage": True})
    )
    found = joined_stream(chunks)
    for choice in answer.choices:
        assert "".join(found[choice.index]["text"]) == choice.text
        assert found[choice.index]["ends"] == ["length"]
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (6, 36)


def test_several_answers_to_a_chat_differ_and_count_the_prompt_once(client: openai.OpenAI) -> None:
    one, several = chat(client), chat(client, n=4)
    texts = [choice.message.content for choice in several.choices]
    assert len(set(texts)) == 4
    assert texts[0] == one.choices[0].message.content
    assert several.usage.prompt_tokens == one.usage.prompt_tokens
    assert several.usage.completion_tokens == 24
    chunks = list(chat(client, n=4, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.prompt_tokens == one.usage.prompt_tokens
    assert chunks[-1].usage.completion_tokens == 24


def test_the_best_of_several_is_the_likeliest(client: openai.OpenAI) -> None:
    every = complete(client, n=6, logprobs=0).choices
    best = complete(client, n=2, best_of=6)
    by_score = sorted(every, key=lambda choice: -sum(choice.logprobs.token_logprobs))
    assert [choice.text for choice in best.choices] == [choice.text for choice in by_score[:2]]
    assert best.choices[0].logprobs is None
    assert best.usage.completion_tokens == 36
    with pytest.raises(openai.BadRequestError) as refusal:
        complete(client, best_of=2, stream=True)
    assert refusal.value.param == "best_of"


def test_more_answers_than_can_ever_run_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        chat(client, n=100)
    assert refusal.value.param == "n"
    with pytest.raises(openai.BadRequestError) as refusal:
        complete(client, prompt=["a", "b"], n=60)
    assert refusal.value.param == "prompt"


def test_prompt_logprobs_are_told_as_vllm_tells_them(running: ServerProcess) -> None:
    body = {"max_tokens": 2, "prompt_logprobs": 2, "temperature": 0}
    plain = httpx.post(f"{running.api}/completions", json={**body, "prompt": "café"}).json()
    entries = plain["choices"][0]["prompt_logprobs"]
    assert entries[0] is None
    for byte, entry in zip("café".encode()[1:], entries[1:], strict=True):
        own = entry[str(byte)]
        assert own["decoded_token"] == (chr(byte) if byte < 128 else f"\\x{byte:02x}")
        ranks = sorted(each["rank"] for each in entry.values())
        assert ranks[:2] == [1, 2]
        assert len(entry) == 2 if own["rank"] <= 2 else len(entry) == 3
    chatted = httpx.post(
        f"{running.api}/chat/completions",
        json={**body, "n": 2, "messages": [{"role": "user", "content": "x"}]},
    ).json()
    assert len(chatted["prompt_logprobs"]) == chatted["usage"]["prompt_tokens"]


def test_hot_answers_with_log_probabilities_never_fail(client: openai.OpenAI) -> None:
    for seed in range(20):
        answer = chat(client, temperature=5, seed=seed, logprobs=True, top_logprobs=5)
        assert len(answer.choices[0].logprobs.content) == answer.usage.completion_tokens
