"""Engines that are Python packages: each in an interpreter of its own, driven by a script that runs there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ferrum import environment
from ferrum.bench.compare_phases import ComparePhase
from ferrum.bench.peers.peer import PeerFailed, PeerSetup, PeerUnavailable, PhaseUnsupported, PromptMaker
from ferrum.bench.phases import PhaseKind

_LOOK_UP_S = 60
_END_S = 10


@dataclass(frozen=True, slots=True)
class Installation:
    """An interpreter that has a peer's package."""

    python: str
    version: str


def find_installation(peer: str, program: str | None, packages: Sequence[str] = ()) -> Installation:
    """``program``, or our own interpreter, with the first of ``packages`` that is installed there.

    Without ``packages`` the peer's name is the package's. Raises PeerUnavailable when none is installed.
    """
    python = program or sys.executable
    version = _installed_version(python, packages or (peer,))
    if version is None:
        package = " or ".join(packages or (peer,))
        raise PeerUnavailable(f"{package} is not installed for {python}; give {peer}=/path/to/python")
    return Installation(python, version)


def _installed_version(python: str, packages: Sequence[str]) -> str | None:
    script = """
import importlib.metadata, sys
for package in sys.argv[1:]:
    try:
        print(importlib.metadata.version(package))
        break
    except importlib.metadata.PackageNotFoundError:
        pass
"""
    try:
        done = subprocess.run(
            [python, "-c", script, *packages], capture_output=True, text=True, timeout=_LOOK_UP_S
        )
    except (OSError, subprocess.TimeoutExpired):
        raise PeerUnavailable(f"{python} cannot be started") from None
    if done.returncode != 0:
        raise PeerUnavailable(f"{python} is no Python that lists its packages")
    return done.stdout.strip() or None


class ScriptedPeer:
    """A Peer whose script answers questions: a line of JSON in on stdin, a line of JSON out on stdout.

    The script is told the model, the threads and ``settings`` in its first argument and says {"ready": true}
    once loaded. ``variables`` are added to its environment.
    A question is {"prompt": [token ids], "output_tokens": n}; the answer {"first_token_s": s,
    "rest_s": s, "output_tokens": n} or {"error": text}. One sequence at a time. Mutable: the process.
    """

    def __init__(
        self,
        name: str,
        installation: Installation,
        script: str,
        setup: PeerSetup,
        settings: Mapping[str, object] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Raises PeerFailed when the model cannot be loaded."""
        self._name = name
        self._version = installation.version
        self._prompts = PromptMaker(setup.vocabulary_size)
        told = {"model": str(setup.model_path), "threads": setup.num_threads, **(settings or {})}
        self._process = subprocess.Popen(
            [installation.python, "-c", script, json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment.child_environment(variables or {}),
        )
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        return self._version

    def measure(self, phase: ComparePhase) -> float:
        if phase.num_sequences > 1:
            raise PhaseUnsupported(phase.name)
        answer = self._ask(self._prompts.make(phase.prompt_tokens), phase.output_tokens)
        return scripted_rate(answer, phase)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(_END_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, prompt: list[int], output_tokens: int) -> Mapping[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"prompt": prompt, "output_tokens": output_tokens}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise PeerFailed("its process has ended") from None
        return self._read()

    def _read(self) -> Mapping[str, Any]:
        """The next line that is a JSON object; packages print other things, too."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):
                continue
            answer: dict[str, Any] = json.loads(line)
            if "error" in answer:
                raise PeerFailed(str(answer["error"])[:200])
            return answer
        raise PeerFailed("its process has ended")


def scripted_rate(answer: Mapping[str, Any], phase: ComparePhase) -> float:
    """Tokens per second. Raises PeerFailed for an answer of another length than asked for."""
    if answer["output_tokens"] != phase.output_tokens:
        raise PeerFailed(f"it gave {answer['output_tokens']} tokens, not {phase.output_tokens}")
    if phase.kind is PhaseKind.PREFILL:
        return phase.prompt_tokens / float(answer["first_token_s"])
    return (phase.output_tokens - 1) / float(answer["rest_s"])


def require_file(path: Path, package: str) -> None:
    """Raises PeerUnavailable for a model that is a folder; ``package`` reads single GGUF files."""
    if not path.is_file():
        raise PeerUnavailable(f"{package} is measured on a single GGUF file")
