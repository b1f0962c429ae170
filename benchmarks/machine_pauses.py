"""How long this machine keeps a process that only computes from its processors.

    python benchmarks/machine_pauses.py [--seconds 10]

Other processes and the kernel do, and a host that limits a virtual machine's processor time: it stops all
processors at once, for 10 or 20 ms, when they have been busy without a pause for long. What is measured here
shows in the largest gap of any server on the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

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


def longest_pause(seconds: float) -> float:
    """Longest time, in seconds, in which one of the processors did not come to look at the clock.

    A process on each of them looks for so many seconds, and does nothing else.
    """
    looks = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LOOK.format(processor=processor, seconds=seconds)],
            stdout=subprocess.PIPE,
        )
        for processor in sorted(os.sched_getaffinity(0))
    ]
    return max(float(look.communicate()[0]) for look in looks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    print(f"longest pause: {longest_pause(parser.parse_args().seconds) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
