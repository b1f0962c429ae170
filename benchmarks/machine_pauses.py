"""How long this machine keeps work from its processors, and how much longer than usual the same work takes.

    python benchmarks/machine_pauses.py [--seconds 10] [--windows 1]

Other processes and the kernel do, and a host: it stops all processors of a virtual machine at once, for 10 or
20 ms, or lends their halves to others for some tenths of a second. Both show in the largest gap of any server
on the machine. Measured for each window of so many seconds: the longest time in which a process that does
nothing but look at the clock did not come to it; and, in a second such window, how many times as long as
their median pieces of always the same work (products of matrices that fit a core's cache, some 25 ms) took.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import NamedTuple

_LOOK = """
import os, time
os.sched_setaffinity(0, {{{processor}}})
last = time.perf_counter()
end, longest = last + {seconds}, 0.0
while last < end:
    now = time.perf_counter()
    longest, last = max(longest, now - last), now
print(longest)
"""

_WORK = """
import json, os, time
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.sched_setaffinity(0, {{{processor}}})
import numpy as np
a = np.full((256, 256), 0.5, np.float32)

def seconds_of(count):
    began = time.perf_counter()
    for _ in range(count):
        a @ a
    return time.perf_counter() - began

seconds_of(100)
count = max(1, round(200 * 0.025 / seconds_of(200)))
end, pieces = time.perf_counter() + {seconds}, []
while time.perf_counter() < end:
    pieces.append(seconds_of(count))
print(json.dumps(pieces))
"""


class Stretch(NamedTuple):
    """How many times as long as the median piece of work the 99th percentile and the longest took."""

    late: float
    largest: float


def longest_pause(seconds: float) -> float:
    """Longest time, in seconds, in which one of the processors did not come to look at the clock.

    A process on each of them looks for so many seconds, and does nothing else.
    """
    return max(float(answer) for answer in _on_each_processor(_LOOK, seconds))


def work_stretch(seconds: float) -> Stretch:
    """Of pieces of the same work that a process on each processor does for so many seconds; the worst."""
    of_each = [sorted(json.loads(answer)) for answer in _on_each_processor(_WORK, seconds)]
    late = max(pieces[int(0.99 * len(pieces))] / statistics.median(pieces) for pieces in of_each)
    return Stretch(late, max(pieces[-1] / statistics.median(pieces) for pieces in of_each))


def _on_each_processor(program: str, seconds: float) -> list[bytes]:
    running = [
        subprocess.Popen(
            [sys.executable, "-I", "-c", program.format(processor=processor, seconds=seconds)],
            stdout=subprocess.PIPE,
        )
        for processor in sorted(os.sched_getaffinity(0))
    ]
    return [process.communicate()[0] for process in running]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--windows", type=int, default=1)
    given = parser.parse_args()
    for _ in range(given.windows):
        pause, stretch = longest_pause(given.seconds), work_stretch(given.seconds)
        print(
            f"longest pause: {pause * 1e3:.1f} ms; the same work took up to {stretch.largest:.2f} times its "
            f"median, 99 % of it {stretch.late:.2f}"
        )


if __name__ == "__main__":
    main()
