"""Sessions on a server in a process of its own: what the model sees is the whole conversation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from server_process import ServerProcess, server

from tiny_chat_model import write_tiny_chat_model

NUM_TURNS = 5


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    model = write_tiny_chat_model(tmp_path_factory.mktemp("model") / "tiny.gguf", context_length=1024)
    command = [sys.executable, "-m", "ferrum", "serve", str(model), "--port", "0", "--threads", "1"]
    with server([*command, "--session-cache", "memory", "--session-tokens", "300"]) as process:
        yield process


def _turn(client: openai.OpenAI, messages: list[dict[str, str]], session: str | None, stream: bool) -> str:
    headers = {} if session is None else {"X-Ferrum-Session": session}
    options = {"model": "tiny", "messages": messages, "max_tokens": 6, "temperature": 0}
    if not stream:
        return client.chat.completions.create(**options, extra_headers=headers).choices[0].message.content
    chunks = client.chat.completions.create(**options, extra_headers=headers, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True])
def test_sixteen_sessions_answer_as_if_each_client_sent_all_its_messages(
    running: ServerProcess, stream: bool
) -> None:
    def talk(number: int) -> tuple[list[str], list[str]]:
        with openai.OpenAI(base_url=running.api, api_key="none", max_retries=0) as client:
            history: list[dict[str, str]] = [{"role": "system", "content": f"number {number}"}]
            with_session, whole = [], []
            for turn in range(NUM_TURNS):
                new = [{"role": "user", "content": f"{turn} of {number}"}]
                history += new
                sent = history[:2] if turn == 0 else new
                with_session.append(_turn(client, sent, f"{stream} {number}", stream))
                whole.append(_turn(client, history, None, stream))
                history.append({"role": "assistant", "content": whole[-1]})
            return with_session, whole

    with ThreadPoolExecutor(16) as pool:
        for with_session, whole in pool.map(talk, range(16)):
            assert with_session == whole
    assert running.metric("ferrum_session_cache_entries") >= 16
    assert running.metric("ferrum_session_cache_evictions_total") == 0


def test_a_session_that_goes_on_for_long_never_outgrows_the_context(running: ServerProcess) -> None:
    with openai.OpenAI(base_url=running.api, api_key="none", max_retries=0) as client:
        for turn in range(30):
            _turn(
                client, [{"role": "user", "content": f"question {turn} \U0001f600\U0001f601"}], "long", False
            )
            assert running.metric("ferrum_session_cache_tokens") <= 300 * 33


def test_a_limit_that_is_none_is_refused_before_the_model_is_loaded() -> None:
    command = [sys.executable, "-m", "ferrum", "serve", "nowhere.gguf", "--max-sessions", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr == "ferrum: error: --max-sessions: must be at least 1, not 0\n"
