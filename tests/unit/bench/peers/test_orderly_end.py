"""A comparison that is told to end closes what it opened."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from ferrum.bench.peers.child_process import ChildProcess
from ferrum.bench.peers.orderly_end import orderly_end


def test_a_peer_does_not_outlive_a_comparison_that_is_ended() -> None:
    process = ChildProcess([sys.executable, "-c", "import time; time.sleep(60)"])

    def compare() -> None:
        with orderly_end():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                signal.pause()
            finally:
                process.close()

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        compare()
    assert ended.value.code == 143
    assert process._process.returncode == -signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
