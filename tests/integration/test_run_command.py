"""``ferrum run`` and ``ferrum serve`` as programs, on a tiny random model."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from server_process import server

from ferrum.cli.main import main
from tiny_chat_model import write_tiny_chat_model

FERRUM = [sys.executable, "-m", "ferrum"]
Run = Callable[..., subprocess.CompletedProcess[bytes]]
SHORT = ["--max-tokens", "8", "--seed", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def model(home: Path) -> str:
    return str(write_tiny_chat_model(home / "tiny.gguf"))


def ferrum(
    home: Path, *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    variables = {**os.environ, "FERRUM_HOME": str(home), **(environment or {})}
    return subprocess.run(
        [*FERRUM, *arguments], input=stdin, capture_output=True, timeout=30, env=variables, check=False
    )


@pytest.fixture
def ferrum_here(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """The same command in this process, where only its outcome matters: starting Python takes longest."""

    def run(*arguments: str, home: Path = home) -> subprocess.CompletedProcess[bytes]:
        monkeypatch.setenv("FERRUM_HOME", str(home))
        monkeypatch.setattr(sys, "argv", ["ferrum", *arguments])
        with open(os.devnull) as nothing:
            monkeypatch.setattr(sys, "stdin", nothing)
            with pytest.raises(SystemExit) as ended:
                main()
        written = capfdbinary.readouterr()
        status = ended.value.code
        assert isinstance(status, int)
        return subprocess.CompletedProcess(arguments, status, written.out, written.err)

    return run


def events(home: Path, *arguments: str, stdin: bytes = b"") -> list[dict[str, Any]]:
    ended = ferrum(home, "run", *arguments, "--output-format", "jsonl", stdin=stdin)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def one_line_error(ended: subprocess.CompletedProcess[bytes]) -> str:
    assert ended.returncode == 1
    assert ended.stdout == b""
    [line] = ended.stderr.decode().splitlines()
    assert line.startswith("ferrum: error: ")
    return line


def test_only_the_answer_is_on_stdout_and_it_ends_with_a_newline(home: Path, model: str) -> None:
    ended = ferrum(home, "run", model, "--prompt", "hello", *SHORT)

    assert ended.returncode == 0
    assert ended.stderr == b""
    assert ended.stdout.endswith(b"\n")
    assert b"\x1b[" not in ended.stdout
    result = events(home, model, "--prompt", "hello", *SHORT)[-2]
    assert ended.stdout.decode() in (result["content"], result["content"] + "\n")


def test_jsonl_tells_the_whole_story(home: Path, model: str) -> None:
    told = events(home, model, "--prompt", "hello", *SHORT)

    names = [event["event"] for event in told]
    assert names[:2] == ["ready", "user"]
    assert names[-2:] == ["assistant", "exit"]
    answer = told[-2]
    assert answer["content"] == "".join(
        event["content"] for event in told if event["event"] == "assistant_delta"
    )
    assert answer["seed"] == 1
    assert answer["finish_reason"] in ("length", "eos")


def test_stdin_is_the_prompt_or_comes_before_it(home: Path, model: str) -> None:
    assert events(home, model, *SHORT, stdin=b"from stdin\n")[1]["content"] == "from stdin"
    both = events(home, model, "--prompt", "Shorten this.", *SHORT, stdin=b"A text.\nMore.\n")
    assert both[1]["content"] == "A text.\nMore.\n\nShorten this."


def test_stdin_that_is_open_but_silent_does_not_block_a_prompt(home: Path, model: str) -> None:
    read_end, write_end = os.pipe()
    try:
        command = [*FERRUM, "run", model, "--prompt", "hello", *SHORT]
        ended = subprocess.run(
            command,
            stdin=read_end,
            capture_output=True,
            timeout=30,
            env={**os.environ, "FERRUM_HOME": str(home)},
            check=False,
        )
    finally:
        os.close(read_end)
        os.close(write_end)
    assert ended.returncode == 0
    assert b"stdin is open but silent" in ended.stderr


def test_stdin_that_is_not_utf8_is_read_with_a_note(home: Path, model: str) -> None:
    ended = ferrum(home, "run", model, *SHORT, stdin=b"\xff\xfehi")

    assert ended.returncode == 0
    assert b"not UTF-8" in ended.stderr
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "cp1252"},
    ],
)
def test_no_locale_makes_printing_fail(home: Path, model: str, environment: dict[str, str]) -> None:
    arguments = [
        "run",
        model,
        "--prompt",
        "say 🙂",
        "--max-tokens",
        "60",
        "--temperature",
        "5",
        "--threads",
        "1",
    ]
    ended = ferrum(home, *arguments, environment=environment)

    assert ended.returncode == 0, ended.stderr
    assert b"Traceback" not in ended.stderr


def test_options_reach_the_sampler(model: str, ferrum_here: Run) -> None:
    def content(*options: str) -> str:
        arguments = ["--prompt", "hello", "--threads", "1", "--max-tokens", "20", *options]
        ended = ferrum_here("run", model, *arguments, "--output-format", "jsonl")
        return str(json.loads(ended.stdout.splitlines()[-2])["content"])

    greedy = content("--temperature", "0")
    assert content("--temperature", "0") == greedy
    assert content("--seed", "1", "--top-k", "1") == greedy
    assert content("--seed", "1", "--min-p", "1") == greedy
    assert content("--seed", "1", "--temperature", "3") != content("--seed", "2", "--temperature", "3")
    assert len(greedy) >= 4
    assert content("--temperature", "0", "--stop", greedy[2:4], "--stop", "never there") == greedy[:2]
    assert content("--temperature", "0", "--system", "user") != greedy
    assert content("--temperature", "0", "--raw") != greedy


def test_log_probabilities_are_in_the_json_lines_and_refused_where_they_would_not_show(
    model: str, ferrum_here: Run
) -> None:
    command = ["run", model, "--prompt", "hello", *SHORT, "--logprobs", "2"]
    ended = ferrum_here(*command, "--output-format", "jsonl")
    answer = json.loads(ended.stdout.splitlines()[-2])
    assert len(answer["logprobs"]["content"]) == answer["completion_tokens"]
    assert all(len(each["top_logprobs"]) == 2 for each in answer["logprobs"]["content"])
    assert "--output-format jsonl" in one_line_error(ferrum_here(*command))


def test_base_model_is_refused_for_chat_in_a_line_that_says_what_to_do(home: Path, ferrum_here: Run) -> None:
    base = str(write_tiny_chat_model(home / "base.gguf", template=None))
    line = one_line_error(ferrum_here("run", base, "--prompt", "hello"))

    assert "--raw" in line
    assert "--chat-template" in line
    assert ferrum_here("run", base, "--raw", "--prompt", "hello", *SHORT).returncode == 0


def test_chat_template_file_is_used_and_a_broken_one_named_with_its_line(
    home: Path, model: str, ferrum_here: Run
) -> None:
    good, broken, escaped = home / "good.jinja", home / "broken.jinja", home / "escaped.jinja"
    good.write_text("{{ messages[0].content }}")
    broken.write_text("line one\n{% for %}")
    escaped.write_text(r"<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n")
    base = ["run", model, "--prompt", "hello", *SHORT]

    assert ferrum_here(*base, "--chat-template", str(good)).returncode == 0
    assert "line 2" in one_line_error(ferrum_here(*base, "--chat-template", str(broken)))
    assert "line 1" in one_line_error(ferrum_here(*base, "--chat-template", str(escaped)))
    refusing = home / "refusing.jinja"
    refusing.write_text(r'{{ raise_exception("first\nsecond") }}')
    assert "first second" in one_line_error(ferrum_here(*base, "--chat-template", str(refusing)))
    missing = one_line_error(ferrum_here(*base, "--chat-template", str(home / "none.jinja")))
    assert "none.jinja" in missing


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--prompt", ""], "prompt is empty"),
        (["--prompt", "x", "--temperature", "-1"], "--temperature: must be"),
        (["--prompt", "x", "--top-p", "0"], "--top-p: must be"),
        (["--prompt", "x", "--threads", "0"], "threads"),
        (["--prompt", "x", "--context-length", "99999"], "--context-length"),
        (["--prompt", "x", "--context-length", "8"], "context holds 8 tokens"),
        (["--prompt", "x", "--max-tokens", "99999"], "context holds 2048 tokens"),
        (["--prompt", "x", "--raw", "--system", "y"], "--system"),
        (["--prompt", "x", "--stop", ""], "stop"),
    ],
)
def test_bad_options_are_one_line(
    home: Path, model: str, ferrum_here: Run, options: list[str], words: str
) -> None:
    assert words in one_line_error(ferrum_here("run", model, *options))


def test_bad_models_are_one_line(home: Path, model: str, ferrum_here: Run) -> None:
    truncated, other = home / "truncated.gguf", home / "text.gguf"
    truncated.write_bytes(Path(model).read_bytes()[:-100])
    other.write_text("no model at all")

    assert "truncated.gguf" in one_line_error(ferrum_here("run", str(truncated), "--prompt", "x"))
    assert "not a GGUF file" in one_line_error(ferrum_here("run", str(other), "--prompt", "x"))
    assert "not found" in one_line_error(ferrum_here("run", str(home / "nowhere.gguf"), "--prompt", "x"))
    served = ferrum_here("serve", str(truncated), "--port", "0")
    assert served.returncode == 1
    assert b"truncated.gguf" in served.stderr.splitlines()[-1]
    assert b"Traceback" not in served.stderr


def test_wrong_usage_exits_with_2_and_names_the_option(home: Path, model: str, ferrum_here: Run) -> None:
    ended = ferrum_here("run", model, "--bogus")

    assert ended.returncode == 2
    assert b"--bogus" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_interrupted_answer_exits_with_130(home: Path, model: str) -> None:
    command = [*FERRUM, "run", model, "--prompt", "hello", "--threads", "1", "--temperature", "0"]
    with subprocess.Popen(
        [*command, "--output-format", "jsonl"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "FERRUM_HOME": str(home)},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert b"cancelled" in rest
    assert b"Traceback" not in errors


def test_reader_that_leaves_is_no_traceback(home: Path, model: str) -> None:
    command = [*FERRUM, "run", model, "--prompt", "hello", "--threads", "1", "--temperature", "0"]
    # More than a pipe holds, so that the program still writes when its reader has left.
    with subprocess.Popen(
        [*command, "--output-format", "jsonl"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "FERRUM_HOME": str(home)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(10)
    assert process.returncode == 1
    assert errors == b""


@pytest.mark.parametrize("command", ["--version", "list", "run"])
def test_full_disk_behind_stdout_is_one_line(home: Path, model: str, command: str) -> None:
    arguments = [command] if command != "run" else [command, model, "--prompt", "x", *SHORT]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*FERRUM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=30,
            env={**os.environ, "FERRUM_HOME": str(home)},
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == b"ferrum: error: No space left on device\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_end_nothing(home: Path, model: str, closed: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *FERRUM, "run", model, "--prompt", "x", *SHORT],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        env={**os.environ, "FERRUM_HOME": str(home)},
        check=False,
    )
    assert ended.returncode == 0
    assert ended.stderr == b""
    assert bool(ended.stdout) == (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.parametrize(
    "command", ["list", "rm smollm2:135m", "run smollm2:135m --prompt x", "pull smollm2:135m"]
)
def test_home_that_cannot_be_used_is_one_line(tmp_path: Path, ferrum_here: Run, command: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    ended = ferrum_here(*command.split(), home=file)
    assert ended.returncode == 1
    assert str(file) in ended.stderr.decode().splitlines()[-1]
    assert b"Traceback" not in ended.stderr


def test_light_commands_import_nothing_heavy(home: Path) -> None:
    heavy = [
        "numpy",
        "tokenizers",
        "starlette",
        "uvicorn",
        "pydantic",
        "rich",
        "jinja2",
        "prompt_toolkit",
        "torch",
    ]
    script = (
        "import sys, ferrum, ferrum.cli.main, ferrum.cli.run, ferrum.cli.serve\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
    script = (
        "import sys, ferrum.cli.run_session\n"
        f"print([name for name in {heavy[2:4] + heavy[7:]} if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_version_and_help(ferrum_here: Run) -> None:
    assert ferrum_here("--version").stdout.startswith(b"ferrum ")
    told = ferrum_here("--help").stdout
    assert all(name in told for name in (b"run", b"serve", b"pull", b"list", b"rm", b"plan", b"bench"))


def test_serve_says_what_it_chose_and_answers(home: Path, model: str) -> None:
    command = [*FERRUM, "serve", model, "--port", "0", "--threads", "1"]
    names = ["--served-model-name", "small", "--served-model-name", "org/small"]
    with server([*command, *names]) as running:
        told = "".join(running.lines)
        for words in (
            "threads: 1, as asked for",
            "context: 2048 tokens",
            "KV cache: ",
            "serving small, org/small",
        ):
            assert words in told
        with openai.OpenAI(base_url=running.api, api_key="none", max_retries=0) as client:
            assert [card.id for card in client.models.list()] == ["small", "org/small"]
            answer = client.chat.completions.create(
                model="org/small",
                messages=[{"role": "user", "content": "hello"}],
                max_tokens=4,
                temperature=0,
            )
            assert answer.model == "org/small"
        running.terminate()
        assert running.process.wait(10) == 0


def test_serve_is_ready_soon(home: Path, model: str) -> None:
    started_at = time.monotonic()
    with server([*FERRUM, "serve", model, "--port", "0"]):
        assert time.monotonic() - started_at < 5


def test_too_little_memory_is_one_line_with_numbers_and_an_option(home: Path, model: str) -> None:
    limited = ["sh", "-c", 'ulimit -v 400000; exec "$@"', "sh", *FERRUM, "run", model, "--prompt", "x"]
    ended = subprocess.run(
        limited,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        env={**os.environ, "FERRUM_HOME": str(home), "OPENBLAS_NUM_THREADS": "1"},
        check=False,
    )
    line = one_line_error(ended)
    assert "raise ulimit -v by " in line
    assert "needed" in line
