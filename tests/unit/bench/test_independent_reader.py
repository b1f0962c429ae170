"""The other programs' outputs, as they really print them, and what happens when they are not there."""

from __future__ import annotations

import sys

import pytest

from ferrum.bench.ceilings import CrossCheck, cross_check
from ferrum.bench.independent_reader import (
    IndependentRead,
    IndependentReader,
    find_reader,
    parse_mbw,
    parse_sysbench,
    run_program,
    sysbench_command,
)
from ferrum.core.errors import InvalidConfig

SYSBENCH = """sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Running memory speed test with the following options:
  block size: 262144KiB
  operation: read
  scope: local

Total operations: 44 (   42.30 per second)

11264.00 MiB transferred (10829.52 MiB/sec)
"""

MBW = """0\tMethod: MEMCPY\tElapsed: 0.01182\tMiB: 64.00000\tCopy: 5414.552 MiB/s
AVG\tMethod: MEMCPY\tElapsed: 0.01088\tMiB: 64.00000\tCopy: 5885.057 MiB/s
AVG\tMethod: DUMB\tElapsed: 0.00906\tMiB: 64.00000\tCopy: 7065.837 MiB/s
"""


def reader(rates: list[float]) -> IndependentReader:
    """A program that prints the next of ``rates``."""
    waiting = iter(rates)
    return IndependentReader("meter", "1", "read", 2, (sys.executable, "-c", ""), lambda _: next(waiting))


def test_bandwidths_are_read_from_the_programs_outputs() -> None:
    assert parse_sysbench(SYSBENCH) == 10829.52 * 2**20
    assert parse_mbw(MBW) == 5885.057 * 2**20


@pytest.mark.parametrize("parse", [parse_sysbench, parse_mbw])
def test_an_output_without_a_bandwidth_is_one_clear_error(parse: object) -> None:
    assert callable(parse)
    with pytest.raises(InvalidConfig, match="no bandwidth in its output: 'usage: meter'"):
        parse("usage: meter\nmore\n")


def test_sysbench_reads_with_all_threads_and_blocks_beyond_the_cache() -> None:
    command = sysbench_command(512 * 2**20, 2)
    assert {"--threads=2", "--memory-block-size=256M", "--memory-oper=read"} <= set(command)


def test_without_a_program_there_is_no_reader() -> None:
    assert find_reader(2**30, 2, find=lambda name: None) is None
    found = find_reader(64 * 2**20, 2, find=lambda name: "/bin/mbw" if name == "mbw" else None)
    assert found is not None
    assert (found.program, found.num_threads, found.command[-1]) == ("mbw", 1, "64")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("/no/such/program",), "cannot be started"),
        ((sys.executable, "-c", "import sys; sys.exit('out of luck')"), "failed with status 1: out of luck"),
    ],
)
def test_a_program_that_does_not_work_is_named(command: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words) as caught:
        run_program(command)
    assert caught.value.field == command[0]


def test_the_larger_of_the_two_readers_is_the_ceiling() -> None:
    lazy = cross_check(lambda: 20.0, reader([24.0, 30.0, 22.0]))
    assert lazy.read.bytes_per_second == 24.0
    assert lazy.factor == pytest.approx(1.2)
    diligent = CrossCheck(IndependentRead("meter", "read", 2, 15.0), "1", 20.0)
    assert diligent.factor == 1.0
    assert diligent.as_json()["own_bytes_per_second"] == 20.0
