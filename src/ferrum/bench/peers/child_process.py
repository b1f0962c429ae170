"""A peer's process: started, waited for until it is ready, ended for certain."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ferrum import environment
from ferrum.bench.peers.peer import PeerFailed, PeerUnavailable

_END_S = 10.0
_POLL_S = 0.05


def free_port() -> int:
    """A port of the loopback address that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ChildProcess:
    """Runs ``command`` with its output in a file of its own, and ``variables`` added to our environment.

    Mutable: the process it owns.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        """Raises PeerUnavailable when the command cannot be started."""
        self._command = tuple(command)
        with tempfile.NamedTemporaryFile(prefix="ferrum-peer-", suffix=".log", delete=False) as log:
            self._log = Path(log.name)
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment.child_environment(variables or {}),
                )
            except OSError as error:
                self._log.unlink()
                raise PeerUnavailable(f"{command[0]} cannot be started: {error.strerror}") from None

    def wait_until(self, is_ready: Callable[[], bool], timeout_s: float) -> None:
        """Raises PeerFailed, with the process's last words, when it ends first or is not ready in time."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if self._process.poll() is not None:
                raise PeerFailed(f"{self._command[0]} ended at its start: {self.last_words()}")
            if time.monotonic() > deadline:
                raise PeerFailed(f"{self._command[0]} was not ready within {timeout_s:g} s")
            time.sleep(_POLL_S)

    def output(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def last_words(self) -> str:
        """The last line of its output that says something."""
        lines = [line.strip() for line in self.output().splitlines() if line.strip()]
        return lines[-1][:200] if lines else "it said nothing"

    def close(self) -> None:
        """Asks it to end, then ends it; idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.unlink(missing_ok=True)
