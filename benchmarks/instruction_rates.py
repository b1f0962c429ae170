"""What the processor does at most: rates of the instructions that the inner loops are made of, one thread.

usage: python benchmarks/instruction_rates.py

Needs g++ or clang++. Every line is a loop of nothing but the named instructions on registers, free of
dependencies beyond each accumulator's own. From the mixes follows the least time of a prompt, however good a
kernel is: the last column is products a second of one core if everything else cost nothing.
docs/performance-log.md uses it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ACCUMULATORS = 10


@dataclass(frozen=True, slots=True)
class Mix:
    """``lines``: assembly with {n} for a register number; ``dots``: of them counted; ``products`` of each."""

    name: str
    flags: str  # of /proc/cpuinfo that it needs
    lines: tuple[str, ...]
    dots: int
    products: int


def accumulating(instruction: str, register: str, count: int = ACCUMULATORS) -> tuple[str, ...]:
    return tuple(f"{instruction} %%{register}15,%%{register}14,%%{register}{n}" for n in range(count))


def pairs_of_avx2() -> tuple[str, ...]:
    lines = []
    for n in range(5):
        lines += [f"vpmaddubsw %%ymm15,%%ymm14,%%ymm{n + 8}", f"vpaddw %%ymm{n + 8},%%ymm{n},%%ymm{n}"]
    return tuple(lines)


AFTER_A_BLOCK = (
    "vcvtdq2ps %%zmm15,%%zmm10",
    "vmulps %%zmm15,%%zmm14,%%zmm11",
    "vfmadd231ps %%zmm15,%%zmm14,%%zmm8",
)
AFTER_A_BLOCK_WITH_MINIMUM = (*AFTER_A_BLOCK, "vfmadd231ps %%zmm15,%%zmm14,%%zmm9")

MIXES = (
    Mix("vpdpbusd, 64 products", "avx512_vnni", accumulating("vpdpbusd", "zmm"), 10, 64),
    Mix(
        "8 vpdpbusd and a block's scale",
        "avx512_vnni",
        (*accumulating("vpdpbusd", "zmm", 8), *AFTER_A_BLOCK),
        8,
        64,
    ),
    Mix(
        "8 vpdpbusd, a block's scale and minimum",
        "avx512_vnni",
        (*accumulating("vpdpbusd", "zmm", 8), *AFTER_A_BLOCK_WITH_MINIMUM),
        8,
        64,
    ),
    Mix("fma of 16 floats", "avx512f", accumulating("vfmadd231ps", "zmm"), 10, 16),
    Mix("vpmaddubsw and vpaddw, 32 products", "avx2", pairs_of_avx2(), 5, 32),
    Mix("fma of 8 floats", "fma", accumulating("vfmadd231ps", "ymm"), 10, 8),
)

PROGRAM = """
#include <chrono>
#include <cstdint>
#include <cstdio>
static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
template <typename Body> double best_seconds(Body body) {
  double best = 1e9;
  for (int i = 0; i < 9; ++i) {
    const double begin = now();
    body();
    const double took = now() - begin;
    if (took < best) best = took;
  }
  return best;
}
int main() {
  const long turns = 5000000;
  // A multiplication waits three cycles for the one before it.
  const double hertz = 3 * 4 * turns / best_seconds([&] {
    uint64_t x = 1;
    for (long i = 0; i < 4 * turns; ++i) asm volatile("imul %0,%0" : "+r"(x));
  });
  printf("clock %.6f\\n", hertz / 1e9);
BODIES
}
"""


def main() -> None:
    compiler = next((path for name in ("g++", "clang++") if (path := shutil.which(name))), None)
    if compiler is None or os.uname().machine != "x86_64":
        sys.exit("instruction_rates: needs an x86-64 processor, and g++ or clang++")
    flags = Path("/proc/cpuinfo").read_text().split()
    mixes = [mix for mix in MIXES if mix.flags in flags]
    bodies = "\n".join(body_of(index, mix) for index, mix in enumerate(mixes))
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "rates.cpp"), Path(folder, "rates")
        source.write_text(PROGRAM.replace("BODIES", bodies))
        subprocess.run([compiler, "-O2", "-march=native", str(source), "-o", str(program)], check=True)
        output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    (_, clock), *rates = (line.split() for line in output.splitlines())
    print(f"clock {float(clock):.2f} GHz")
    print(f"{'instructions':<42}{'a cycle':>9}{'most, 1e9 products/s':>23}")
    for mix, (_, rate) in zip(mixes, rates, strict=True):
        print(f"{mix.name:<42}{float(rate) / float(clock):>9.2f}{float(rate) * mix.products:>23.0f}")


def body_of(index: int, mix: Mix) -> str:
    text = "\\n".join(mix.lines)
    width = "zmm" if "zmm" in text else "ymm"
    clobbered = ", ".join(f'"{width}{n}"' for n in range(14))
    return f"""  printf("rate{index} %.6f\\n", {mix.dots} * turns / 1e9 / best_seconds([&] {{
    for (long i = 0; i < turns; ++i) asm volatile("{text}" ::: {clobbered});
  }}));"""


if __name__ == "__main__":
    main()
