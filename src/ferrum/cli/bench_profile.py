"""``ferrum bench profile``: the time of a phase, kind by kind of operation, beside the plan's prediction."""

from __future__ import annotations

from typing import Annotated

import typer

from ferrum.cli.download_progress import DownloadProgress
from ferrum.cli.figure_table import figure, percent, print_line, print_table
from ferrum.cli.json_output import JsonOption, require_writable, write_json
from ferrum.cli.model_options import KvDtypeOption, ModelArgument, ThreadsOption
from ferrum.core.kv_dtype import KvDtype


def profile(
    model: ModelArgument,
    phase: Annotated[
        str,
        typer.Option("--phase", help="prefill, prefill_deep, decode, decode_deep or batch_decode."),
    ] = "decode",
    output: JsonOption = None,
    threads: ThreadsOption = None,
    kv_dtype: KvDtypeOption = KvDtype.F16,
) -> None:
    """Time every operation of MODEL's steps beside what its bytes and its arithmetic allow."""
    from ferrum.bench.bench_model import ModelChoice
    from ferrum.bench.phases import phase_named
    from ferrum.bench.profile_report import report_profile

    require_writable(output, "--json")
    choice = ModelChoice(model, threads, kv_dtype)
    report = report_profile(choice, phase_named(phase), DownloadProgress())
    print_line(
        f"{report.measured_on.model}, {report.phase.name}: {report.num_steps} steps in "
        f"{report.wall_s * 1e3:.1f} ms, {report.timed_s * 1e3:.1f} ms of them in operations"
    )
    rows = []
    for line in report.lines:
        prediction = line.prediction
        rows.append(
            (
                line.kind,
                f"{line.calls:,}",
                figure(line.seconds * 1e3, 2),
                percent(line.seconds / report.timed_s if report.timed_s else None),
                figure(prediction.bytes_s * 1e3 if prediction else None, 2),
                figure(prediction.arithmetic_s * 1e3 if prediction else None, 2),
                figure(line.ratio, 2),
            )
        )
    print_table(("operation", "calls", "ms", "share", "bytes ms", "arithmetic ms", "ratio"), rows)
    if output is not None:
        write_json(output, report.as_json())
