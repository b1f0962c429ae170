"""The machine's description from files a test wrote."""

from __future__ import annotations

from pathlib import Path

from ferrum.bench.machine import processor_flags, read_machine


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_machine_is_read_from_the_system_files(tmp_path: Path) -> None:
    cpu = "processor\t: {}\nmodel name\t: Fast CPU 9\n\n"
    write(tmp_path / "proc/cpuinfo", cpu.format(0) + cpu.format(1))
    write(tmp_path / "proc/meminfo", "MemFree: 5 kB\nMemTotal:       2048 kB\n")
    for index, size in enumerate(("32K", "512K", "32768K")):
        write(tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}/size", size + "\n")
    machine = read_machine(tmp_path)
    assert (machine.cpu_model, machine.num_cpus) == ("Fast CPU 9", 2)
    assert machine.last_level_cache_bytes == 32 * 2**20
    assert machine.memory_bytes == 2 * 2**20


def test_what_a_system_does_not_tell_is_unknown(tmp_path: Path) -> None:
    machine = read_machine(tmp_path)
    assert machine.last_level_cache_bytes is None
    assert machine.memory_bytes is None
    assert machine.num_cpus == 0
    assert machine.cpu_model


def test_instruction_sets_are_those_of_the_first_processor(tmp_path: Path) -> None:
    assert processor_flags(tmp_path) == frozenset()
    write(tmp_path / "proc/cpuinfo", "processor : 0\nflags\t\t: fpu avx2 avx512_bf16\n\nflags : fpu\n")
    assert processor_flags(tmp_path) == {"fpu", "avx2", "avx512_bf16"}
