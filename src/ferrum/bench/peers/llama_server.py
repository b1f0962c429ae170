"""llama.cpp's llama-server, in the better of its configurations for each phase."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ferrum.bench.compare_phases import ComparePhase
from ferrum.bench.peers.child_process import ChildProcess, free_port
from ferrum.bench.peers.llama_http import LlamaHttp
from ferrum.bench.peers.peer import PeerFailed, PeerSetup, PeerUnavailable, PromptMaker

START_S = 300.0
# A slot must hold its sequence, and llama.cpp rounds contexts up.
_CONTEXT_STEP = 256


class FlashAttention(StrEnum):
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class RunningServer:
    process: ChildProcess
    http: LlamaHttp
    flash_attention: FlashAttention


StartServer = Callable[[ComparePhase, FlashAttention], RunningServer]


class BestLlamaServer:
    """A llama.cpp server for each phase, with flash attention on or off, whichever measured faster at first.

    A Peer; mutable: the servers it started.
    """

    def __init__(self, name: str, version: str, start: StartServer) -> None:
        self._name = name
        self._version = version
        self._start = start
        self._servers: dict[str, RunningServer] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        chosen = [f"{phase}: {server.flash_attention}" for phase, server in self._servers.items()]
        return f"{self._version}, flash attention {', '.join(chosen)}" if chosen else self._version

    def measure(self, phase: ComparePhase) -> float:
        if phase.name not in self._servers:
            self._servers[phase.name] = self._choose(phase)
        return self._servers[phase.name].http.measure(phase)

    def close(self) -> None:
        for server in self._servers.values():
            server.process.close()
        self._servers.clear()

    def _choose(self, phase: ComparePhase) -> RunningServer:
        """The faster of both; the other is ended. llama.cpp warms itself up before it says it is ready.

        Raises PeerFailed when neither works.
        """
        best: tuple[float, RunningServer] | None = None
        failure: PeerFailed | None = None
        for flash_attention in FlashAttention:
            try:
                server = self._start(phase, flash_attention)
            except PeerFailed as failed:
                failure = failed
                continue
            try:
                rate = server.http.measure(phase)
            except PeerFailed as failed:
                server.process.close()
                failure = failed
                continue
            except BaseException:
                server.process.close()
                raise
            if best is not None and best[0] >= rate:
                server.process.close()
                continue
            if best is not None:
                best[1].process.close()
            best = (rate, server)
        if best is None:
            assert failure is not None
            raise failure
        return best[1]


def open_llama_server(setup: PeerSetup) -> BestLlamaServer:
    """Raises PeerUnavailable when there is no such program."""
    binary = setup.program or shutil.which("llama-server")
    if binary is None:
        raise PeerUnavailable("llama-server is not on the PATH; give llama-server=/path/to/it")
    prompts = PromptMaker(setup.vocabulary_size)

    def start(phase: ComparePhase, flash_attention: FlashAttention) -> RunningServer:
        port = free_port()
        process = ChildProcess(llama_server_command(binary, setup, phase, flash_attention, port))
        http = LlamaHttp(port, prompts)
        try:
            process.wait_until(http.is_ready, START_S)
        except BaseException:
            process.close()
            raise
        return RunningServer(process, http, flash_attention)

    return BestLlamaServer("llama-server", read_version(binary), start)


def llama_server_command(
    binary: str, setup: PeerSetup, phase: ComparePhase, flash_attention: FlashAttention, port: int
) -> list[str]:
    """As many slots as sequences, each with room for one; all threads for prompts and answers."""
    threads = str(setup.num_threads)
    return [
        binary,
        *("--model", str(setup.model_path)),
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--threads", threads),
        *("--threads-batch", threads),
        *("--ctx-size", str(slot_tokens(phase) * phase.num_sequences)),
        *("--parallel", str(phase.num_sequences)),
        *("--flash-attn", str(flash_attention)),
    ]


def slot_tokens(phase: ComparePhase) -> int:
    """Context of one sequence."""
    return (phase.sequence_tokens // _CONTEXT_STEP + 1) * _CONTEXT_STEP


def read_version(binary: str) -> str:
    """Such as "version 11434 (abcdef1)". Raises PeerUnavailable when the program does not start."""
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"{binary} cannot be started: {error}") from None
    found = re.search(r"version:\s*(.+)", done.stderr + done.stdout)
    if done.returncode != 0 or found is None:
        raise PeerUnavailable(f"{binary} --version does not say a version")
    return f"version {found.group(1).strip()}"
