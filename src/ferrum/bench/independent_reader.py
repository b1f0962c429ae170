"""Memory bandwidth as programs that are not ours see it: sysbench, which reads, or else mbw, which copies.

A ceiling that only our own reader measured would make a lazy reader look like a fast engine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ferrum.core.errors import InvalidConfig

MEBIBYTE = 2**20
TIMEOUT_S = 60

Run = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class IndependentRead:
    """``method`` says what was counted; ``bytes_per_second`` is of all ``num_threads`` together."""

    program: str
    method: str
    num_threads: int
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class IndependentReader:
    """A program that is installed, ready to be asked."""

    program: str
    version: str
    method: str
    num_threads: int
    command: tuple[str, ...]
    parse: Callable[[str], float]

    def measure(self, run: Run | None = None) -> IndependentRead:
        """Raises InvalidConfig when the program fails or says something else than expected."""
        output = (run or run_program)(self.command)
        return IndependentRead(self.program, self.method, self.num_threads, self.parse(output))


def find_reader(
    num_bytes: int, num_threads: int, find: Callable[[str], str | None] = shutil.which
) -> IndependentReader | None:
    """The best of those installed, reading ``num_bytes`` with ``num_threads``; None when there is none."""
    if find("sysbench"):
        return IndependentReader(
            program="sysbench",
            version=_first_line(run_program(("sysbench", "--version"))),
            method="read",
            num_threads=num_threads,
            command=sysbench_command(num_bytes, num_threads),
            parse=parse_sysbench,
        )
    if find("mbw"):
        return IndependentReader(
            program="mbw",
            version="",
            method="copy, counting what was read",
            num_threads=1,
            command=("mbw", "-q", "-n", "3", "-t0", str(max(1, num_bytes // MEBIBYTE))),
            parse=parse_mbw,
        )
    return None


def sysbench_command(num_bytes: int, num_threads: int) -> tuple[str, ...]:
    """Each thread reads a block of its own from end to end, for a second."""
    block_mib = max(1, num_bytes // num_threads // MEBIBYTE)
    return (
        "sysbench",
        "memory",
        "run",
        "--memory-oper=read",
        "--memory-access-mode=seq",
        "--memory-scope=local",
        f"--memory-block-size={block_mib}M",
        "--memory-total-size=1000T",
        f"--threads={num_threads}",
        "--time=1",
    )


def parse_sysbench(output: str) -> float:
    """Bytes per second from "11264.00 MiB transferred (10829.52 MiB/sec)"."""
    found = re.search(r"MiB transferred \(([0-9.]+) MiB/sec\)", output)
    if found is None:
        raise InvalidConfig("sysbench", f"no bandwidth in its output: {_first_line(output)!r}")
    return float(found.group(1)) * MEBIBYTE


def parse_mbw(output: str) -> float:
    """Bytes per second from the line "AVG  Method: MEMCPY ... Copy: 5885.057 MiB/s"."""
    found = re.search(r"^AVG\s+Method: MEMCPY.*Copy:\s+([0-9.]+) MiB/s", output, re.MULTILINE)
    if found is None:
        raise InvalidConfig("mbw", f"no bandwidth in its output: {_first_line(output)!r}")
    return float(found.group(1)) * MEBIBYTE


def run_program(command: Sequence[str]) -> str:
    """What ``command`` prints. Raises InvalidConfig when it cannot run, fails or does not end."""
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    except OSError as error:
        raise InvalidConfig(command[0], f"cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise InvalidConfig(command[0], f"did not end within {TIMEOUT_S} s") from None
    except subprocess.CalledProcessError as error:
        said = _first_line(error.stderr or error.stdout)
        raise InvalidConfig(command[0], f"failed with status {error.returncode}: {said}") from None
    return done.stdout


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
