"""Start-up under limits of memory: sizes shrink and say so, or one line says what to lower."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from server_process import server

from ferrum import LLM, EngineConfig, SamplingParams
from ferrum.assembly.model_loading import LoadOptions, PlanModel, load_model
from ferrum.core.config import SchedulerConfig
from ferrum.core.errors import ResourceExhausted
from ferrum.core.kv_dtype import KvDtype
from ferrum.weights.progress_reporter import SilentReporter
from tiny_chat_model import write_tiny_chat_model

FERRUM = [sys.executable, "-m", "ferrum"]
MEBIBYTE = 1024 * 1024
# A context so long that a tiny model needs more than half a gigabyte for it.
CONTEXT = 2**23


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def model(home: Path) -> str:
    return str(write_tiny_chat_model(home / "tiny.gguf", context_length=CONTEXT))


def ferrum(home: Path, *arguments: str, kibibytes: int | None = None) -> subprocess.CompletedProcess[str]:
    limited = ["sh", "-c", f'ulimit -v {kibibytes}; exec "$@"', "sh"] if kibibytes is not None else []
    variables = {**os.environ, "FERRUM_HOME": str(home), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [*limited, *FERRUM, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env=variables,
        check=False,
    )


def load(model: str, home: Path, system_root: Path, config: EngineConfig) -> PlanModel:
    options = LoadOptions(
        threads=1, engine=config, model_directory=home, cache_directory=home, system_root=system_root
    )
    loaded = load_model(model, options, SilentReporter())
    loaded.runtime.close()
    return loaded


def control_group(root: Path, num_bytes: int) -> Path:
    """A system whose control group leaves ``num_bytes`` to this process."""
    files = {
        "proc/meminfo": "MemAvailable: 999999999 kB\n",
        "proc/self/cgroup": "0::/box\n",
        "sys/fs/cgroup/box/memory.max": f"{num_bytes + 1000}\n",
        "sys/fs/cgroup/box/memory.current": "1000\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_control_group_bounds_what_a_model_takes(home: Path, model: str, tmp_path: Path) -> None:
    loaded = load(model, home, control_group(tmp_path, 300 * MEBIBYTE), EngineConfig())
    memory = loaded.memory
    assert memory.budget is not None
    assert memory.budget.source == "90% of what the control group leaves"
    assert memory.total_bytes <= memory.budget.num_bytes == int(0.9 * 300 * MEBIBYTE)
    assert loaded.plan.context_length == memory.sizes.context_length < CONTEXT
    assert "context_length" in {change.name for change in memory.changes}


def test_an_explicit_context_fits_or_is_refused_with_one_that_fits(
    home: Path, model: str, tmp_path: Path
) -> None:
    root = control_group(tmp_path, 300 * MEBIBYTE)
    with pytest.raises(ResourceExhausted, match="lower --context-length to") as refused:
        load(model, home, root, EngineConfig(max_model_len=CONTEXT))
    found = re.search(r"--context-length to (\d+)", str(refused.value))
    assert found
    fitting = int(found[1])
    assert load(model, home, root, EngineConfig(max_model_len=fitting)).plan.context_length == fitting
    with pytest.raises(ResourceExhausted):
        load(model, home, root, EngineConfig(max_model_len=fitting + 64))


def test_int8_leaves_room_for_a_longer_context(home: Path, model: str, tmp_path: Path) -> None:
    root = control_group(tmp_path, 300 * MEBIBYTE)
    half, int8 = (load(model, home, root, EngineConfig(kv_dtype=kv_dtype)) for kv_dtype in KvDtype)
    assert int8.memory.sizes.context_length > half.memory.sizes.context_length
    assert int8.identity != half.identity
    # 16 values a head: 32 bytes against 16 and a scale of 4.
    assert int8.memory.kv_bytes_per_token * 32 == half.memory.kv_bytes_per_token * 20


def test_sequences_that_were_asked_for_are_kept(home: Path, model: str, tmp_path: Path) -> None:
    root = control_group(tmp_path, 300 * MEBIBYTE)
    scheduler = SchedulerConfig(max_running_requests=100)
    loaded = load(model, home, root, EngineConfig(scheduler=scheduler))
    assert loaded.memory.sizes.sequences == 100
    assert loaded.memory.num_blocks * 32 >= loaded.memory.sizes.context_length + 99 * 256


def test_an_engine_runs_with_the_sizes_that_fit(model: str) -> None:
    sampling = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    with LLM(model, threads=1, config=EngineConfig(memory_bytes=200 * MEBIBYTE)) as llm:
        assert len(llm.generate(["hello"] * 20, sampling)) == 20


def test_a_model_answers_under_a_limit_of_the_address_space(home: Path, model: str) -> None:
    ended = ferrum(
        home, "run", model, "--prompt", "hello", "--max-tokens", "4", "--threads", "1", kibibytes=1_200_000
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout


def test_a_limit_of_the_address_space_refuses_what_was_asked_for(home: Path, model: str) -> None:
    arguments = ["run", model, "--prompt", "hello", "--threads", "1", "--context-length", str(CONTEXT)]
    ended = ferrum(home, *arguments, kibibytes=1_200_000)
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    for words in ("needed", "available", "lower --context-length to ", "ulimit -v leaves", "MiB"):
        assert words in line


def test_serve_says_in_one_line_what_it_chose_within_memory(home: Path, model: str) -> None:
    command = [*FERRUM, "serve", model, "--port", "0", "--threads", "1", "--memory", "250MiB"]
    with server([*command, "--kv-dtype", "int8", "--max-num-seqs", "3"]) as running:
        [line] = [line for line in running.lines if line.startswith("context: ")]
        told = re.fullmatch(
            r"context: (\d+) tokens \(of 8388608: memory\); sequences: 3; step: \d+ tokens.*; "
            r"KV cache: (\d+) blocks of 32 tokens, \d+ MiB; memory: (\d+) MiB of 250 MiB, --memory\n",
            line,
        )
        assert told, line
        assert int(told[1]) <= int(told[2]) * 32
        assert int(told[3]) <= 250
        assert any("kv=int8" in line for line in running.lines)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--memory", "20MiB"], ["use a smaller model", "raise --memory by "]),
        (["--memory", "4000GiB"], ["lower --memory"]),
        (["--memory", "200MiB", "--context-length", "2000000"], ["lower --context-length to "]),
        (["--memory", "200MiB", "--max-num-seqs", "3000"], ["lower --max-num-seqs to "]),
        (["--memory", "much"], ["--memory: 'much' is no size"]),
    ],
)
def test_what_cannot_fit_is_one_line_that_names_what_to_change(
    home: Path, model: str, options: list[str], words: list[str]
) -> None:
    ended = ferrum(home, "serve", model, "--port", "0", "--threads", "1", *options)
    assert ended.returncode == 1
    line = ended.stderr.splitlines()[-1]
    assert line.startswith("ferrum: error: ")
    for word in words:
        assert word in line
