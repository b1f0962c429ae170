"""Prompts that are pinned, saved and restored on a server in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_process import ServerProcess, server

from tiny_chat_model import write_tiny_chat_model

KEY = "a key that is long".replace(" ", "-")
RULES = (
    "Whoever reads this answers in verse, never in prose, and rhymes the first line with the last one. " * 2
)
ROUTES = [
    ("GET", "pins"),
    ("POST", "pins"),
    ("GET", "pins/rules"),
    ("DELETE", "pins/rules"),
    ("POST", "pins/rules/save"),
    ("POST", "pins/rules/restore"),
    ("GET", "saved-pins"),
    ("DELETE", "saved-pins/rules"),
]


def _command(folder: Path, *options: str) -> list[str]:
    model = folder / "tiny.gguf"
    if not model.exists():
        write_tiny_chat_model(model, context_length=1024)
    return [sys.executable, "-m", "ferrum", "serve", str(model), "--port", "0", "--threads", "1", *options]


def _with_key(folder: Path, *options: str) -> list[str]:
    key = folder / "key"
    key.write_text(KEY + "\n")
    return _command(folder, "--admin-key-file", str(key), *options)


class _Administrator:
    def __init__(self, running: ServerProcess) -> None:
        self.running = running

    def call(self, method: str, path: str, expected: int, body: object = None) -> Any:
        headers, url = {"Authorization": f"Bearer {KEY}"}, f"{self.running.url}/admin/{path}"
        answer = httpx.request(method, url, json=body, headers=headers, timeout=60)
        assert answer.status_code == expected, answer.text
        return answer.json()

    def refused(
        self, method: str, path: str, expected: int, body: object = None
    ) -> tuple[str, str | None, str]:
        error = self.call(method, path, expected, body)["error"]
        return error["code"], error["param"], error["message"]

    def ask(self, question: str) -> tuple[str, int]:
        """The answer, and how many tokens of the prompt were cached."""
        messages = [{"role": "system", "content": RULES}, {"role": "user", "content": question}]
        body = {"messages": messages, "max_tokens": 8, "temperature": 0}
        answer = httpx.post(f"{self.running.api}/chat/completions", json=body, timeout=60).json()
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return answer["choices"][0]["message"]["content"], cached


SYSTEM = {"name": "rules", "messages": [{"role": "system", "content": RULES}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pins")


@pytest.fixture(scope="module")
def administrator(folder: Path) -> Iterator[_Administrator]:
    with server(_with_key(folder, "--pin-dir", str(folder / "saved"))) as running:
        yield _Administrator(running)


def test_a_pinned_system_prompt_is_saved_and_is_there_when_the_server_comes_back(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    with server(_with_key(tmp_path, "--pin-dir", str(saved))) as running:
        administrator = _Administrator(running)
        pin = administrator.call("POST", "pins", 201, SYSTEM)
        assert pin["num_tokens"] % 32 == 0
        assert pin["num_tokens"] >= 160
        assert pin["num_bytes"] > 0
        assert running.metric("ferrum_prefix_cache_pinned_blocks") == pin["num_tokens"] / 32
        assert administrator.call("GET", "pins", 200)["data"] == [pin]
        expected, cached = administrator.ask("Why?")
        assert pin["num_tokens"] <= cached < pin["num_tokens"] + 32
        file = administrator.call("POST", "pins/rules/save", 201)
        assert file["num_bytes"] == (saved / "rules.ferrum-kv").stat().st_size
        running.terminate()
        assert running.process.wait(30) == 0
    with server(_with_key(tmp_path, "--pin-dir", str(saved), "--restore-pins")) as running:
        administrator = _Administrator(running)
        assert f"restored 1 pinned prefixes, {pin['num_tokens']} tokens" in "".join(running.lines)
        assert administrator.call("GET", "pins/rules", 200) == pin
        assert running.metric("ferrum_engine_prefill_tokens_total") == 0
        assert administrator.ask("Why?") == (expected, pin["num_tokens"])


def test_a_file_that_cannot_be_used_keeps_nobody_from_serving(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "rules.ferrum-kv").write_bytes(b"ferrum-kv 1\nnonsense")
    with server(_command(tmp_path, "--pin-dir", str(saved), "--restore-pins")) as running:
        lines = "".join(running.lines)
        assert "restored 0 pinned prefixes, 0 tokens" in lines
        assert "not restored: rules: " in lines
        assert _Administrator(running).ask("Why?")[1] == 0


def test_a_pin_goes_and_comes_back_while_the_server_runs(administrator: _Administrator) -> None:
    pin = administrator.call("POST", "pins", 201, SYSTEM)
    administrator.call("POST", "pins/rules/save", 201)
    assert administrator.refused("POST", "pins", 409, SYSTEM)[0] == "prefix_pinned_already"
    assert administrator.refused("POST", "pins/rules/restore", 409)[0] == "prefix_pinned_already"
    assert administrator.call("DELETE", "pins/rules", 200)["deleted"] is True
    assert administrator.call("GET", "pins", 200)["data"] == []
    assert administrator.call("POST", "pins/rules/restore", 201) == pin
    administrator.call("DELETE", "pins/rules", 200)
    (file,) = administrator.call("GET", "saved-pins", 200)["data"]
    assert file["name"] == "rules"
    administrator.call("DELETE", "saved-pins/rules", 200)
    code, _, message = administrator.refused("POST", "pins/rules/restore", 404)
    assert code == "prefix_not_found"
    assert message == "no saved prefix named 'rules'; there are: none"


def test_a_salted_pin_is_found_and_comes_back_under_its_salt_alone(administrator: _Administrator) -> None:
    prompt = list(range(40, 90))
    pin = administrator.call("POST", "pins", 201, {"name": "mine", "prompt": prompt, "cache_salt": "x"})
    assert pin["is_salted"] is True
    for salt, cached in ((None, 0), ("x", 49)):
        body = {"prompt": prompt, "max_tokens": 1, "cache_salt": salt}
        usage = httpx.post(f"{administrator.running.api}/completions", json=body, timeout=60).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == cached
    administrator.call("POST", "pins/mine/save", 201)
    administrator.call("DELETE", "pins/mine", 200)
    assert administrator.refused("POST", "pins/mine/restore", 400)[1] == "cache_salt"
    assert administrator.call("POST", "pins/mine/restore", 201, {"cache_salt": "x"})["is_salted"] is True
    administrator.call("DELETE", "pins/mine", 200)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": RULES}, "name"),
        ({"name": "a"}, "prompt"),
        ({"name": "a", "prompt": RULES, "messages": []}, "prompt"),
        ({"name": "a", "prompt": [RULES, RULES]}, "prompt"),
        ({"name": "a", "prompt": "short"}, "prompt"),
        ({"name": "a", "prompt": [-1] * 64}, "prompt"),
        ({"name": "a", "messages": []}, "messages"),
        ({"name": "a", "prompt": RULES, "chat_template_kwargs": {}}, "chat_template_kwargs"),
        ({"name": "../a", "prompt": RULES}, "name"),
        ({"name": 1, "prompt": RULES}, "name"),
        ({"name": "a", "prompt": RULES, "cache_salt": ""}, "cache_salt"),
        ({"name": "a", "prompt": RULES, "ttl": 1}, "ttl"),
        ({"name": "a", "prompt": "long " * 2000}, "prompt"),
    ],
)
def test_a_pin_that_cannot_be_is_refused_by_field_and_leaves_nothing(
    administrator: _Administrator, body: object, param: str | None
) -> None:
    assert administrator.refused("POST", "pins", 400, body)[1] == param
    assert administrator.call("GET", "pins", 200)["data"] == []


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "pins/x"), ("DELETE", "pins/x"), ("POST", "pins/x/save")]
)
def test_a_pin_that_is_not_there_is_404(administrator: _Administrator, method: str, path: str) -> None:
    code, _, message = administrator.refused(method, path, 404)
    assert (code, message) == ("prefix_not_found", "no pinned prefix named 'x'; there are: none")


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY}x", KEY]
)
def test_nothing_is_done_without_the_key(
    administrator: _Administrator, method: str, path: str, header: str | None
) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = httpx.request(method, f"{administrator.running.url}/admin/{path}", headers=headers, timeout=5)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_admin_key"
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_without_a_key_of_its_own_a_server_lets_nobody_pin_and_says_how(tmp_path: Path) -> None:
    with server(_command(tmp_path)) as running:
        administrator = _Administrator(running)
        for method, path in ROUTES:
            code, _, message = administrator.refused(method, path, 403, SYSTEM)
            assert code == "administration_off"
            assert "--admin-key-file" in message


def test_the_key_may_come_from_the_environment_and_a_short_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRUM_ADMIN_KEY", KEY)
    with server(_command(tmp_path)) as running:
        assert _Administrator(running).call("GET", "pins", 200)["data"] == []
        assert KEY not in "".join(running.lines)
    monkeypatch.setenv("FERRUM_ADMIN_KEY", "guess me")
    ended = subprocess.run(_command(tmp_path), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert (
        ended.stderr
        == "ferrum: error: admin key: must be letters, digits and signs of ASCII, without blanks\n"
    )


def test_pins_and_streams_do_not_disturb_one_another(administrator: _Administrator) -> None:
    """Answers that are written while prefixes are pinned, saved, restored and unpinned stay what they are."""
    questions = [f"What is {number}?" for number in range(6)]
    alone = [administrator.ask(question)[0] for question in questions]
    with ThreadPoolExecutor(6) as pool:
        running = [pool.submit(administrator.ask, question) for question in questions * 5]
        for _ in range(5):
            administrator.call("POST", "pins", 201, SYSTEM)
            administrator.call("POST", "pins/rules/save", 201)
            administrator.call("DELETE", "pins/rules", 200)
            administrator.call("POST", "pins/rules/restore", 201)
            administrator.call("DELETE", "pins/rules", 200)
        assert [answer.result()[0] for answer in running] == alone * 5


def test_a_pin_that_cannot_be_written_or_read_says_why_and_stays(
    administrator: _Administrator, folder: Path
) -> None:
    administrator.call("POST", "pins", 201, SYSTEM)
    (folder / "saved").rename(folder / "away")
    code, _, message = administrator.refused("POST", "pins/rules/save", 507)
    (folder / "away").rename(folder / "saved")
    assert (code, message.rpartition(": ")[2]) == ("prefix_not_saved", "No such file or directory")
    administrator.call("POST", "pins/rules/save", 201)
    (folder / "saved" / "rules.ferrum-kv").write_bytes(b"ferrum-kv 1\n")
    administrator.call("DELETE", "pins/rules", 200)
    assert administrator.refused("POST", "pins/rules/restore", 409)[0] == "unusable_saved_prefix"
    assert administrator.ask("Why?")[0] == administrator.ask("Why?")[0]
    administrator.call("DELETE", "saved-pins/rules", 200)


def test_more_changes_than_may_wait_are_refused_and_the_others_are_made(
    administrator: _Administrator,
) -> None:
    def pin(number: int) -> int:
        body = {"name": f"many-{number}", "prompt": [40 + number] * 64}
        headers = {"Authorization": f"Bearer {KEY}"}
        url = f"{administrator.running.url}/admin/pins"
        return httpx.post(url, json=body, headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(40) as pool:
        statuses = Counter(pool.map(pin, range(40)))
    assert set(statuses) <= {201, 429, 503}
    pinned = [pin["name"] for pin in administrator.call("GET", "pins", 200)["data"]]
    assert len(pinned) == statuses[201] > 0
    for name in pinned:
        administrator.call("DELETE", f"pins/{name}", 200)


def test_without_a_folder_or_a_cache_the_refusal_says_what_is_missing(tmp_path: Path) -> None:
    with server(_with_key(tmp_path, "--no-prefix-cache")) as running:
        administrator = _Administrator(running)
        assert administrator.refused("POST", "pins/a/save", 403)[2].endswith(
            "start the server with --pin-dir DIR"
        )
        assert "prefix_cache" in administrator.refused("POST", "pins", 403, SYSTEM)[2]
        assert administrator.call("GET", "pins", 200)["data"] == []
