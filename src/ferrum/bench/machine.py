"""What a measurement was made on, so that its figures can be compared with nothing else by mistake."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """``last_level_cache_bytes`` and ``memory_bytes`` are None where the system does not tell."""

    cpu_model: str
    num_cpus: int
    last_level_cache_bytes: int | None
    memory_bytes: int | None
    system: str

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def read_machine(root: Path = Path("/")) -> Machine:
    """This machine, from the files below ``root``: proc_cpuinfo(5), proc_meminfo(5) and sysfs' cpu/cache."""
    cpus = _values_of(root / "proc/cpuinfo", "processor")
    models = _values_of(root / "proc/cpuinfo", "model name")
    memory = _values_of(root / "proc/meminfo", "MemTotal")
    return Machine(
        cpu_model=models[0] if models else platform.processor() or platform.machine(),
        num_cpus=len(cpus),
        last_level_cache_bytes=_last_level_cache(root / "sys/devices/system/cpu/cpu0/cache"),
        memory_bytes=_bytes_of(memory[0].removesuffix("kB").strip() + "K") if memory else None,
        system=f"{platform.system()} {platform.release()}",
    )


def processor_flags(root: Path = Path("/")) -> frozenset[str]:
    """The instruction sets the kernel names, such as "avx512_bf16"; none where the system does not tell."""
    flags = _values_of(root / "proc/cpuinfo", "flags")
    return frozenset(flags[0].split()) if flags else frozenset()


def _values_of(path: Path, key: str) -> list[str]:
    """The values of ``key : value`` lines; none when the file cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    pairs = (line.partition(":") for line in lines)
    return [value.strip() for name, _, value in pairs if name.strip() == key]


def _last_level_cache(folder: Path) -> int | None:
    sizes = [_bytes_of(_text(path)) for path in folder.glob("index*/size")]
    return max((size for size in sizes if size is not None), default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _bytes_of(text: str) -> int | None:
    """ "32768K" and "32M" in bytes."""
    factor = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * factor if digits.isdecimal() else None
