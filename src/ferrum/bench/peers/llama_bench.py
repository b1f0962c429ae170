"""llama.cpp's own benchmark, llama-bench: one sequence at a time, without a server in between."""

from __future__ import annotations

import json
import shutil
import subprocess

from ferrum.bench.compare_phases import ComparePhase
from ferrum.bench.peers.peer import PeerFailed, PeerSetup, PeerUnavailable, PhaseUnsupported
from ferrum.bench.phases import PhaseKind

_TIMEOUT_S = 1800


class LlamaBench:
    """A Peer: a process of its own for each measurement, which loads the model outside the time it takes."""

    name = "llama-bench"

    def __init__(self, binary: str, setup: PeerSetup) -> None:
        self._binary = binary
        self._setup = setup
        self.version = "not run yet"

    def measure(self, phase: ComparePhase) -> float:
        if phase.num_sequences > 1:
            raise PhaseUnsupported(phase.name)
        command = llama_bench_command(self._binary, self._setup, phase)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PeerFailed(str(error)) from None
        if done.returncode != 0:
            raise PeerFailed(f"status {done.returncode}: {done.stderr.strip()[-200:]}")
        rate, self.version = parse_llama_bench(done.stdout)
        return rate

    def close(self) -> None:
        """Nothing runs between measurements."""


def open_llama_bench(setup: PeerSetup) -> LlamaBench:
    """Raises PeerUnavailable when there is no such program."""
    binary = setup.program or shutil.which("llama-bench")
    if binary is None or shutil.which(binary) is None:
        raise PeerUnavailable("llama-bench is not on the PATH; give llama-bench=/path/to/it")
    return LlamaBench(binary, setup)


def llama_bench_command(binary: str, setup: PeerSetup, phase: ComparePhase) -> list[str]:
    """Flash attention both ways; the better result counts."""
    is_prefill = phase.kind is PhaseKind.PREFILL
    return [
        binary,
        *("--model", str(setup.model_path)),
        *("--threads", str(setup.num_threads)),
        *("--n-prompt", str(phase.prompt_tokens if is_prefill else 0)),
        *("--n-gen", str(0 if is_prefill else phase.output_tokens)),
        *("--n-depth", str(0 if is_prefill else phase.prompt_tokens)),
        *("--flash-attn", "0,1"),
        *("--repetitions", "1"),
        *("--output", "json"),
    ]


def parse_llama_bench(output: str) -> tuple[float, str]:
    """The best rate and the version. Raises PeerFailed when the output is something else."""
    try:
        results = json.loads(output)
        best = max(results, key=lambda result: float(result["avg_ts"]))
        flash_attention = "on" if best.get("flash_attn") else "off"
        return float(best["avg_ts"]), f"build {best.get('build_number')}, flash attention {flash_attention}"
    except (ValueError, KeyError, TypeError):
        raise PeerFailed(f"unexpected output: {output.strip()[:80]!r}") from None
