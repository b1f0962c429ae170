"""``ferrum bench roofline``: what the machine allows, and how much of it each phase reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ferrum.cli.download_progress import DownloadProgress
from ferrum.cli.figure_table import figure, percent, print_line, print_table
from ferrum.cli.json_output import JsonOption, require_writable, write_json
from ferrum.cli.list_options import names_of
from ferrum.cli.model_options import KvDtypeOption, ModelArgument, ThreadsOption
from ferrum.cli.streams import say
from ferrum.core.kv_dtype import KvDtype

if TYPE_CHECKING:
    from ferrum.bench.roofline import Roofline
    from ferrum.bench.roofline_report import RooflineReport


def roofline(
    model: ModelArgument,
    output: JsonOption = None,
    phases: Annotated[
        str | None,
        typer.Option("--phases", help="Comma-separated.  [default: prefill,decode,decode_deep,batch_decode]"),
    ] = None,
    repetitions: Annotated[
        int, typer.Option("--repetitions", min=1, help="Rounds over all phases; medians are reported.")
    ] = 5,
    threads: ThreadsOption = None,
    kv_dtype: KvDtypeOption = KvDtype.F16,
) -> None:
    """Measure memory and arithmetic ceilings, and how much of each phase's floor MODEL reaches."""
    from ferrum.bench.bench_model import ModelChoice
    from ferrum.bench.phases import DEFAULT_PHASES, phase_named
    from ferrum.bench.roofline_report import report_roofline

    require_writable(output, "--json")
    choice = ModelChoice(model, threads, kv_dtype)
    chosen = [phase_named(name) for name in (DEFAULT_PHASES if phases is None else names_of(phases))]

    def on_phase(repetition: int, phase: str) -> None:
        say(f"repetition {repetition + 1} of {repetitions}: {phase}")

    report = report_roofline(choice, chosen, repetitions, DownloadProgress(), on_phase)
    _print(report)
    if output is not None:
        write_json(output, report.as_json())


def _print(report: RooflineReport) -> None:
    measured_on, roofline = report.measured_on, report.roofline
    print_line(
        f"{measured_on.model} on {measured_on.machine.cpu_model}, {measured_on.threads} threads, "
        f"kernels {measured_on.kernel_set}, commit {measured_on.commit or 'unknown'}"
    )
    print_line(_read_line(roofline))
    for name, rate in _arithmetic_rates(roofline).items():
        print_line(
            f"arithmetic {name}: {rate / 1e9:.0f} Gop/s (one thread {report.one_thread[name] / 1e9:.0f})"
        )
    rows = []
    for phase in roofline.phases:
        engine = phase.engine_tokens_per_second
        rows.append(
            (
                phase.phase.name,
                figure(phase.tokens_per_second.median),
                percent(phase.tokens_per_second.relative),
                figure(engine.median if engine else None),
                figure(phase.python_ms_per_step, 2),
                figure(phase.floor_tokens_per_second.median),
                str(phase.bound),
                percent(phase.share_of_floor.median),
            )
        )
    headings = (
        "phase",
        "tok/s",
        "spread",
        "engine tok/s",
        "Python ms a step",
        "floor tok/s",
        "bound",
        "share",
    )
    print_table(headings, rows)


def _read_line(roofline: Roofline) -> str:
    check = roofline.cross_check
    own = sum(each.read_bytes_per_second for each in roofline.ceilings) / len(roofline.ceilings)
    if check is None:
        return f"read: {own / 1e9:.1f} GB/s, not cross-checked: neither sysbench nor mbw is installed"
    return (
        f"read: {own * check.factor / 1e9:.1f} GB/s; by turns our reader saw "
        f"{check.own_bytes_per_second / 1e9:.1f}, "
        f"{check.read.program} ({check.read.method}, {check.read.num_threads} threads) "
        f"{check.read.bytes_per_second / 1e9:.1f}"
    )


def _arithmetic_rates(roofline: Roofline) -> dict[str, float]:
    from ferrum.bench.statistics import median

    ceilings = roofline.ceilings
    rates = {
        kind.name: median([each.linear_operations[kind] for each in ceilings])
        for kind in ceilings[0].linear_operations
    }
    return {**rates, "attention": median([each.attention_operations for each in ceilings])}
