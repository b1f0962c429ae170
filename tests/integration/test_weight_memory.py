"""What the real models' weights take in memory: once, about as much as in their file, also while loading."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from server_process import server

from ferrum.models.architectures import build_plan
from ferrum.runtimes.native_memory import packed_weight_bytes
from ferrum.runtimes.weight_loading import PORTION_BYTES
from ferrum.weights.checkpoint import open_checkpoint

pytestmark = pytest.mark.models

MEBIBYTE = 1024 * 1024


@pytest.fixture(params=["smollm2_path", "gemma3_path"])
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def test_packed_weights_take_at_most_three_hundredths_more_than_the_files_tensors(path: Path) -> None:
    with open_checkpoint(path) as checkpoint:
        stored = sum(tensor.num_bytes for tensor in checkpoint.tensors.values())
        assert packed_weight_bytes(build_plan(checkpoint, 512)) <= 1.03 * stored


def test_loading_takes_no_more_memory_than_serving(path: Path) -> None:
    """The file's pages are gone when its weights are packed; both together would be another file's size.

    A portion of the file is there for a while, and in a thread beside it what the tokenizer is made from.
    """
    command = [sys.executable, "-m", "ferrum", "serve", str(path), "--port", "0", "--context-length", "512"]
    with server(command) as running:
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        resident, peak, of_files = (
            int(re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)[1]) * 1024
            for name in ("VmRSS", "VmHWM", "RssFile")
        )
        running.terminate()
    assert peak - resident < PORTION_BYTES + path.stat().st_size / 4
    assert of_files < 64 * MEBIBYTE
