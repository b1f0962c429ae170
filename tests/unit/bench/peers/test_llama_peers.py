"""llama.cpp's adapters against servers that answer like it, and outputs that it really prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_peers import LlamaScript, llama_like_server

from ferrum.bench.compare_phases import COMPARE_PHASES, ComparePhase
from ferrum.bench.peers.child_process import ChildProcess
from ferrum.bench.peers.llama_bench import llama_bench_command, open_llama_bench, parse_llama_bench
from ferrum.bench.peers.llama_http import LlamaHttp, rate_of
from ferrum.bench.peers.llama_server import (
    BestLlamaServer,
    FlashAttention,
    RunningServer,
    llama_server_command,
    open_llama_server,
    read_version,
)
from ferrum.bench.peers.peer import PeerFailed, PeerSetup, PeerUnavailable, PhaseUnsupported, PromptMaker
from ferrum.bench.phases import PhaseKind

PREFILL = ComparePhase("p", PhaseKind.PREFILL, 12, 1)
DECODE = ComparePhase("d", PhaseKind.DECODE, 6, 8)
BATCH = ComparePhase("b", PhaseKind.DECODE, 6, 8, num_sequences=3)
SETUP = PeerSetup(Path("/models/m.gguf"), 2, 100)


def honest(body: Mapping[str, Any]) -> Mapping[str, float]:
    """100 prompt tokens a second, 10 answer tokens a second."""
    count, prompt = body["n_predict"], len(body["prompt"])
    return {
        "prompt_n": prompt,
        "prompt_ms": prompt * 10.0,
        "predicted_n": count,
        "predicted_ms": count * 100.0,
    }


def test_rates_are_the_servers_own() -> None:
    script = LlamaScript(honest)
    with llama_like_server(script) as port:
        http = LlamaHttp(port, PromptMaker(100))
        assert http.is_ready()
        assert http.measure(PREFILL) == pytest.approx(100.0)
        assert http.measure(PREFILL) == pytest.approx(100.0)
        assert http.measure(DECODE) == pytest.approx(10.0)
        assert http.measure(DECODE) == pytest.approx(10.0)
    first, second, third, fourth = script.bodies
    # A prefill must be computed anew each time; a decode goes on from a prompt that is computed once.
    assert first["prompt"] != second["prompt"]
    assert not first["cache_prompt"]
    assert third["prompt"] == fourth["prompt"]
    assert third["cache_prompt"]
    assert all(body["ignore_eos"] and body["temperature"] == 0 for body in script.bodies)


def test_several_sequences_are_streamed_together() -> None:
    script = LlamaScript(honest)
    with llama_like_server(script) as port:
        rate = LlamaHttp(port, PromptMaker(100)).measure(BATCH)
    assert len({tuple(body["prompt"]) for body in script.bodies}) == 3
    # A token every 5 ms or a little later, three times over.
    assert 50 < rate <= 3 * 200


@pytest.mark.parametrize(
    ("timings", "status", "words"),
    [
        (lambda body: {"prompt_n": 3, "prompt_ms": 10.0}, 200, "computed 3 prompt tokens in 10.0 ms, not 12"),
        (lambda body: None, 200, "no timings"),
        (honest, 500, "status 500"),
    ],
)
def test_a_figure_of_something_else_is_refused(timings: Any, status: int, words: str) -> None:
    with (
        llama_like_server(LlamaScript(timings, status)) as port,
        pytest.raises(PeerFailed, match=words),
    ):
        LlamaHttp(port, PromptMaker(100)).measure(PREFILL)


def test_a_server_that_is_gone_has_failed() -> None:
    with llama_like_server(LlamaScript(honest)) as port:
        pass
    http = LlamaHttp(port, PromptMaker(100))
    assert not http.is_ready()
    with pytest.raises(PeerFailed, match="connection"):
        http.measure(PREFILL)


def test_an_answer_without_time_has_no_rate() -> None:
    with pytest.raises(PeerFailed):
        rate_of({"predicted_n": 5, "predicted_ms": 0.0}, "predicted", 5)


class Configurations:
    """Starts fake servers: flash attention on answers twice as fast as off, unless it is broken."""

    def __init__(self, *, broken: FlashAttention | None = None) -> None:
        self._broken = broken
        self.started: list[RunningServer] = []

    def start(self, phase: ComparePhase, flash_attention: FlashAttention) -> RunningServer:
        if flash_attention is self._broken:
            raise PeerFailed("no flash attention here")
        rate = 20.0 if flash_attention is FlashAttention.ON else 10.0
        http = FixedRate(rate)
        process = ChildProcess([sys.executable, "-c", "import sys; sys.stdin.read()"])
        self.started.append(RunningServer(process, http, flash_attention))
        return self.started[-1]


class FixedRate:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def measure(self, phase: ComparePhase) -> float:
        return self.rate


def is_running(server: RunningServer) -> bool:
    return server.process._process.poll() is None


@pytest.mark.parametrize(("broken", "rate", "chosen"), [(None, 20.0, "on"), (FlashAttention.ON, 10.0, "off")])
def test_the_better_configuration_is_kept(broken: FlashAttention | None, rate: float, chosen: str) -> None:
    configurations = Configurations(broken=broken)
    peer = BestLlamaServer("llama-server", "version 1", configurations.start)
    assert peer.version == "version 1"
    assert peer.measure(DECODE) == rate
    assert [is_running(one) for one in configurations.started].count(True) == 1
    num_started = len(configurations.started)
    assert peer.measure(DECODE) == rate
    assert len(configurations.started) == num_started
    assert peer.version == f"version 1, flash attention d: {chosen}"
    peer.close()
    assert not any(is_running(one) for one in configurations.started)


def test_a_server_that_starts_in_no_configuration_has_failed() -> None:
    def start(phase: ComparePhase, flash_attention: FlashAttention) -> RunningServer:
        raise PeerFailed("bad model")

    with pytest.raises(PeerFailed, match="bad model"):
        BestLlamaServer("llama-server", "version 1", start).measure(DECODE)


def test_slots_hold_a_sequence_each() -> None:
    command = llama_server_command("llama-server", SETUP, COMPARE_PHASES["batch16"], FlashAttention.ON, 1234)
    pairs = dict(zip(command[1::2], command[2::2], strict=True))
    assert pairs["--parallel"] == "16"
    assert int(pairs["--ctx-size"]) // 16 >= 128 + 128 + 1
    assert (pairs["--threads"], pairs["--threads-batch"], pairs["--flash-attn"]) == ("2", "2", "on")
    assert (pairs["--host"], pairs["--port"], pairs["--model"]) == ("127.0.0.1", "1234", "/models/m.gguf")


def program(path: Path, body: str) -> str:
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_versions_are_read_from_stderr_as_llama_cpp_writes_them(tmp_path: Path) -> None:
    said = 'import sys; print("version: 11434 (3ebe3f6)\\nbuilt with GNU 12", file=sys.stderr)'
    assert read_version(program(tmp_path / "llama-server", said)) == "version 11434 (3ebe3f6)"
    with pytest.raises(PeerUnavailable, match="does not say a version"):
        read_version(program(tmp_path / "other", "print('hello')"))
    with pytest.raises(PeerUnavailable, match="cannot be started"):
        read_version(str(tmp_path / "none"))


def test_a_server_that_ends_at_its_start_leaves_its_last_words(tmp_path: Path) -> None:
    body = (
        "import sys\n"
        "if '--version' in sys.argv: print('version: 1')\n"
        "else: sys.exit('error: cannot load model')"
    )
    setup = PeerSetup(tmp_path / "m.gguf", 1, 100, program(tmp_path / "llama-server", body))
    peer = open_llama_server(setup)
    with pytest.raises(PeerFailed, match="ended at its start: error: cannot load model"):
        peer.measure(PREFILL)
    peer.close()


BENCH_OUTPUT = json.dumps(
    [
        {"build_number": 11434, "flash_attn": False, "avg_ts": 71.5, "n_prompt": 0, "n_gen": 64},
        {"build_number": 11434, "flash_attn": True, "avg_ts": 74.25, "n_prompt": 0, "n_gen": 64},
    ]
)


def test_llama_benchs_better_result_counts() -> None:
    assert parse_llama_bench(BENCH_OUTPUT) == (74.25, "build 11434, flash attention on")
    for output in ("", "[]", "{}", '[{"avg": 3}]'):
        with pytest.raises(PeerFailed, match="unexpected output"):
            parse_llama_bench(output)


def test_llama_bench_runs_a_process_for_each_measurement(tmp_path: Path) -> None:
    binary = program(tmp_path / "llama-bench", f"print({BENCH_OUTPUT!r})")
    peer = open_llama_bench(PeerSetup(tmp_path / "m.gguf", 1, 100, binary))
    assert peer.measure(DECODE) == 74.25
    assert peer.version == "build 11434, flash attention on"
    with pytest.raises(PhaseUnsupported):
        peer.measure(BATCH)
    broken = program(tmp_path / "broken", "import sys; sys.exit('no model')")
    with pytest.raises(PeerFailed, match="no model"):
        open_llama_bench(PeerSetup(tmp_path / "m.gguf", 1, 100, broken)).measure(DECODE)


def test_llama_bench_decodes_at_the_phases_depth() -> None:
    def options(phase: ComparePhase) -> dict[str, str]:
        command = llama_bench_command("llama-bench", SETUP, phase)
        return dict(zip(command[1::2], command[2::2], strict=True))

    deep, prefill = options(COMPARE_PHASES["decode4096"]), options(COMPARE_PHASES["prefill512"])
    assert (deep["--n-prompt"], deep["--n-gen"], deep["--n-depth"]) == ("0", "32", "4096")
    assert (prefill["--n-prompt"], prefill["--n-gen"], prefill["--n-depth"]) == ("512", "0", "0")


def test_programs_that_are_not_there_are_unavailable(tmp_path: Path) -> None:
    setup = PeerSetup(tmp_path / "m.gguf", 1, 100, str(tmp_path / "none"))
    for opener in (open_llama_server, open_llama_bench):
        with pytest.raises(PeerUnavailable):
            opener(setup)
