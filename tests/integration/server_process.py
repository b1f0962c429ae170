"""A server in a process of its own, as its clients meet it."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

SCRIPTED = Path(__file__).with_name("scripted_server.py")


@dataclass
class ServerProcess:
    """``url`` is the server's root. ``lines`` grows with what it writes to stderr."""

    process: subprocess.Popen[str]
    url: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    def metric(self, name: str) -> float:
        text = httpx.get(f"{self.url}/metrics", timeout=5).text
        found = re.search(rf"^{name} ([0-9.e+]+)$", text, re.MULTILINE)
        assert found, f"no metric {name}"
        return float(found.group(1))

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def server(command: Sequence[str]) -> Iterator[ServerProcess]:
    """Runs ``command`` until it says where it serves, and ends it afterwards."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    running = ServerProcess(process)
    assert process.stderr is not None
    started = threading.Event()

    def read() -> None:
        for line in process.stderr:
            running.lines.append(line)
            if found := re.search(r"serving .* at (http://\S+)/v1", line):
                running.url = found.group(1)
                started.set()
        started.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert started.wait(30), "the server did not start"
        assert running.url, "".join(running.lines)
        yield running
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stderr.close()


@contextmanager
def scripted_server(**options: object) -> Iterator[ServerProcess]:
    """The real server over an engine whose executor is scripted; see scripted_server.py for the options."""
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    with server([sys.executable, str(SCRIPTED), *arguments]) as running:
        yield running
