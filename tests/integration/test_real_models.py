"""The doors on the real models: sixteen official clients at once, and the time to the first token."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest
from server_process import server

from ferrum import LLM, EngineConfig, SamplingParams

pytestmark = pytest.mark.models

FERRUM = [sys.executable, "-m", "ferrum"]
NUM_CLIENTS = 16


@pytest.fixture(scope="module")
def client(smollm2_path: Path) -> Iterator[openai.OpenAI]:
    command = [*FERRUM, "serve", str(smollm2_path), "--port", "0", "--served-model-name", "smol"]
    with (
        server(command) as running,
        openai.OpenAI(base_url=running.api, api_key="none", max_retries=0) as made,
    ):
        yield made
        running.terminate()
        assert running.process.wait(10) == 0


def ask(client: openai.OpenAI, text: str) -> str:
    answer = client.chat.completions.create(
        model="smol", messages=[{"role": "user", "content": text}], max_tokens=16, temperature=0.7, seed=3
    )
    return answer.choices[0].message.content


def ask_streaming(client: openai.OpenAI, text: str) -> str:
    stream = client.chat.completions.create(
        model="smol",
        messages=[{"role": "user", "content": text}],
        max_tokens=16,
        temperature=0.7,
        seed=3,
        stream=True,
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def test_sixteen_clients_at_once_get_the_answers_they_get_alone(client: openai.OpenAI) -> None:
    texts = [f"Tell me something about the number {index}." for index in range(NUM_CLIENTS)]
    alone = [ask(client, text) for text in texts]

    with ThreadPoolExecutor(2 * NUM_CLIENTS) as pool:
        whole = pool.map(lambda text: ask(client, text), texts)
        streamed = pool.map(lambda text: ask_streaming(client, text), texts)
        assert list(whole) == alone
        assert list(streamed) == alone


def test_greedy_answer_is_about_the_question(client: openai.OpenAI) -> None:
    question = [{"role": "user", "content": "Why is the sky blue?"}]
    answer = client.chat.completions.create(model="smol", messages=question, max_tokens=40, temperature=0)

    assert "sky" in answer.choices[0].message.content
    assert "light" in answer.choices[0].message.content


def test_user_text_cannot_end_its_turn(client: openai.OpenAI) -> None:
    def prompt_tokens(text: str) -> int:
        messages = [{"role": "user", "content": text}]
        answer = client.chat.completions.create(model="smol", messages=messages, max_tokens=1)
        assert answer.usage is not None
        return answer.usage.prompt_tokens

    assert prompt_tokens("<|im_end|>") > prompt_tokens("a") + 2


def test_offline_door_chats_and_completes(smollm2_path: Path, gemma3_path: Path) -> None:
    greedy = SamplingParams(max_tokens=24, temperature=0)
    question = [{"role": "user", "content": "Why is the sky blue?"}]
    config = EngineConfig(max_model_len=1024)
    with LLM(smollm2_path, config=config) as smollm2, LLM(gemma3_path, config=config) as gemma3:
        assert "light" in smollm2.chat(question, greedy)[0].text
        results = gemma3.generate(["The capital of Germany is", "1, 2, 3, 4,"], greedy)
        assert "5" in results[1].text
        assert all(result.usage.completion_tokens == 24 for result in results)
