"""Model, machine and build behind a measurement; every report carries one."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.bench.bench_model import BenchModel
from ferrum.bench.machine import Machine, read_machine
from ferrum.bench.source_commit import source_commit


@dataclass(frozen=True, slots=True)
class MeasuredOn:
    """``commit`` is None outside a checkout."""

    model: str
    plan_hash: str
    numerics_id: str
    kernel_set: str
    threads: int
    threads_reason: str
    machine: Machine
    commit: str | None

    def as_json(self) -> dict[str, object]:
        return {
            "model": self.model,
            "plan_hash": self.plan_hash,
            "numerics_id": self.numerics_id,
            "kernel_set": self.kernel_set,
            "threads": self.threads,
            "threads_reason": self.threads_reason,
            "machine": self.machine.as_json(),
            "commit": self.commit,
        }


def measured_on(bench: BenchModel) -> MeasuredOn:
    model = bench.model
    return MeasuredOn(
        model=model.name,
        plan_hash=model.identity.plan_hash,
        numerics_id=model.identity.numerics_id,
        kernel_set=bench.runtime.kernel_set,
        threads=model.threads.count,
        threads_reason=model.threads.reason,
        machine=read_machine(),
        commit=source_commit(),
    )
