"""Whether an engine stays as it is over thousands of short requests, a third of them given up.

    python benchmarks/soak.py smollm2:135m

2,000 requests, 16 at once, of random lengths, stops and seeds, with room for the keys and values of four full
ones. All must end, memory must not grow, and a token must not cost more processor time late than early.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import start_model
from ferrum.bench.soak import Soak, SoakReport
from ferrum.cli.lasting_objects import lasting_objects
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.weights.progress_reporter import SilentReporter

NUM_ROUNDS = 10
CONTEXT = 256
MOST_BYTES_PER_REQUEST = 1024
MOST_LATE_OVER_EARLY = 1.03


def print_report(report: SoakReport) -> None:
    for number, each in enumerate(report.rounds, 1):
        print(
            f"round {number}: {each.num_requests} requests, {each.num_tokens} tokens, "
            f"{each.cpu_s_per_token * 1e3:.3f} ms of processor time a token, "
            f"{each.resident_bytes / 2**20:.2f} MiB resident"
        )
    endings = ", ".join(f"{count} {reason}" for reason, count in sorted(report.endings.items()))
    print(
        f"endings: {endings}; {report.num_preemptions} preemptions, "
        f"{100 * report.recomputed_share:.1f} % of all tokens computed again"
    )
    print(
        f"second half: {report.bytes_per_request:+.0f} bytes a request; "
        f"last round over first: {report.late_over_early:.3f} of the processor time a token"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--requests", type=int, default=2000)
    given = arguments.parse_args()
    with lasting_objects():
        # Expected to write little, so that those without a budget have to give way.
        config = EngineConfig(max_model_len=CONTEXT, scheduler=SchedulerConfig(expected_output_tokens=8))
        engine = start_model(given.model, LoadOptions(engine=config), SilentReporter()).engine
    try:
        report = asyncio.run(Soak(engine, given.requests // NUM_ROUNDS).run(NUM_ROUNDS))
    finally:
        engine.close(0.0)
    print_report(report)
    is_flat = report.bytes_per_request < MOST_BYTES_PER_REQUEST
    sys.exit(0 if is_flat and report.late_over_early < MOST_LATE_OVER_EARLY else 1)


if __name__ == "__main__":
    main()
