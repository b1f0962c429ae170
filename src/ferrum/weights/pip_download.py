"""Downloads one wheel with the person's own pip, index and proxies; never installs or runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ferrum.core.errors import DownloadFailed
from ferrum.weights.progress_reporter import ProgressReporter

POLL_SECONDS = 0.2
# pip has no interface but its text. First match wins: an unreachable index also reads as "no matching".
KNOWN_FAILURES = (
    (("No module named pip",), "this Python has no pip; run 'python -m ensurepip' or use a venv that has it"),
    (("No space left", "[Errno 28]", "File too large", "Disk quota"), "no space left on the disk"),
    (
        ("Retrying (Retry(", "ConnectionError", "NewConnectionError", "Max retries", "timed out"),
        "the package index cannot be reached; check the network, the proxy and 'pip config list'",
    ),
    (
        ("No matching distribution", "Could not find a version", "Invalid requirement"),
        "the package index has no such package or version",
    ),
    (("DO NOT MATCH THE HASHES", "hash mismatch"), "the package index sent a damaged file"),
)


def download_wheel(
    requirement: str, folder: Path, expected_bytes: int | None, reporter: ProgressReporter
) -> Path:
    """Download ``requirement`` (NAME or NAME==VERSION) into ``folder``, empty, and return the wheel's path.

    ``expected_bytes`` only scales the progress. Raises DownloadFailed.
    """
    temporary, destination = folder / "temporary", folder / "wheel"
    temporary.mkdir()
    destination.mkdir()
    log = folder / "pip.log"
    # pip keeps its pieces in TMPDIR: here they are on the right disk, can be watched growing, and a killed
    # download leaves nothing elsewhere. env(1), since one file alone reads the environment.
    command = ["env", f"TMPDIR={temporary.absolute()}", sys.executable, "-P", "-m", "pip", "download"]
    command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off"]
    command += ["--disable-pip-version-check", "--dest", str(destination.absolute()), requirement]
    reporter.begin(f"downloading {requirement}", expected_bytes)
    try:
        returncode = _run(command, log, folder, reporter)
    finally:
        reporter.end()
    wheels = list(destination.glob("*.whl"))
    if returncode != 0 or len(wheels) != 1:
        raise DownloadFailed(f"pypi:{requirement}", _explain(log.read_text(errors="replace")))
    return wheels[0]


def _run(command: list[str], log: Path, folder: Path, reporter: ProgressReporter) -> int:
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            while True:
                try:
                    return process.wait(POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    reporter.advance_to(_largest_wheel(folder))
        finally:
            process.kill()
            process.wait()


def _largest_wheel(folder: Path) -> int:
    """Bytes of the biggest archive so far: pip writes it once in TMPDIR and copies it to its destination."""
    sizes = [0]
    for path in folder.rglob("*.whl"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return max(sizes)


def _explain(log: str) -> str:
    for signs, problem in KNOWN_FAILURES:
        if any(sign in log for sign in signs):
            return problem
    errors = [line.removeprefix("ERROR: ").strip() for line in log.splitlines() if line.startswith("ERROR")]
    lines = errors or [line.strip() for line in log.splitlines() if line.strip()]
    return f"pip says: {lines[-1]}" if lines else "pip ended without a word"
