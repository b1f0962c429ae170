"""Micro-benchmarks of the linear kernels: one line a weight type and number of rows.

usage: python benchmarks/kernels.py [--kernel-set NAME] [--threads N] [--seconds S] [TYPE ...]

Each thread works through a weight of its own that no cache holds. With one row the figure to look at is GB/s
of weights beside what the memory gives; with many rows it is Gop/s beside the same kernel in the cache.
"""

from __future__ import annotations

import argparse

from ferrum import _native
from ferrum.assembly.thread_count import choose_thread_count, read_cpu_limits
from ferrum.bench.ceilings import CACHED_OUTPUTS, CACHED_ROWS, buffer_bytes, cached_columns
from ferrum.bench.machine import read_machine
from ferrum.bench.statistics import median
from ferrum.weights.tensor_types import TensorType

ROWS = (1, 2, 4, 8, 16, 64)
COLUMNS = 2048
STREAMS = (1, 2, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("types", metavar="TYPE", nargs="*", help="default: all")
    parser.add_argument("--kernel-set", default=_native.kernel_sets()[0], choices=_native.kernel_sets())
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each figure")
    options = parser.parse_args()
    unknown = set(options.types) - {kind.name for kind in TensorType}
    if unknown:
        parser.error(
            f"no weight type {', '.join(sorted(unknown))}; there are {', '.join(TensorType.__members__)}"
        )
    threads = choose_thread_count(read_cpu_limits(), options.threads).count
    machine = read_machine()
    num_bytes = buffer_bytes(machine)
    buffer = _native.measure.ReadBuffer(num_bytes, threads)
    read = max(median(buffer.measure(streams, 3)) for streams in STREAMS)
    print(
        f"{machine.cpu_model}, {threads} threads, kernels {options.kernel_set}, reads {read / 1e9:.1f} GB/s"
    )
    print(f"{'type':<6}{'in cache':>10}" + "".join(f"{f'{rows} rows':>20}" for rows in ROWS))
    print(f"{'':<6}{'Gop/s':>10}" + f"{'GB/s':>10}{'Gop/s':>10}" * len(ROWS))
    for kind in TensorType:
        if options.types and kind.name not in options.types:
            continue
        rates = [
            rate_of(options.kernel_set, kind, rows, threads, num_bytes, options.seconds) for rows in ROWS
        ]
        cached = cached_rate(options.kernel_set, kind, threads, options.seconds)
        figures = "".join(f"{weights / 1e9:>10.1f}{operations / 1e9:>10.0f}" for operations, weights in rates)
        print(f"{kind.name:<6}{cached / 1e9:>10.0f}{figures}", flush=True)


def rate_of(
    kernel_set: str, kind: TensorType, rows: int, threads: int, num_bytes: int, seconds: float
) -> tuple[float, float]:
    """Operations and weight bytes per second on weights that lie in memory."""
    share = num_bytes // threads
    outputs = max(16, share // kind.row_bytes(COLUMNS) // 16 * 16)
    return _native.measure.linear_rate(kernel_set, kind.ggml_id, outputs, COLUMNS, rows, threads, seconds)


def cached_rate(kernel_set: str, kind: TensorType, threads: int, seconds: float) -> float:
    return _native.measure.linear_rate(
        kernel_set, kind.ggml_id, CACHED_OUTPUTS, cached_columns(kind), CACHED_ROWS, threads, seconds
    )[0]


if __name__ == "__main__":
    main()
