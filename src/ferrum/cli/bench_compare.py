"""``ferrum bench compare``: this engine beside others, on the same file, by turns."""

from __future__ import annotations

from typing import Annotated

import typer

from ferrum.cli.download_progress import DownloadProgress
from ferrum.cli.figure_table import figure, percent, print_line, print_table
from ferrum.cli.json_output import JsonOption, require_writable, write_json
from ferrum.cli.list_options import names_of
from ferrum.cli.model_options import KvDtypeOption, ModelArgument, ThreadsOption
from ferrum.cli.streams import say
from ferrum.core.kv_dtype import KvDtype


def compare(
    model: ModelArgument,
    peers: Annotated[
        str,
        typer.Option(
            "--peers",
            help="NAME or NAME=PROGRAM, comma-separated: llama-server, llama-bench, xllamacpp, "
            "ik-llama, openvino-genai, mistralrs (PROGRAM is a Python that has the package), "
            "vllm (PYTHON:FOLDER with safetensors).",
        ),
    ] = "llama-server",
    phases: Annotated[
        str, typer.Option("--phases", help="Comma-separated; prefill4096 is there, too.")
    ] = "prefill512,decode,decode4096,batch16",
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Rounds; median ratios are reported.")] = 5,
    output: JsonOption = None,
    threads: ThreadsOption = None,
    kv_dtype: KvDtypeOption = KvDtype.F16,
) -> None:
    """Measure this engine and others alternately on MODEL's file. Peers that are not installed are named."""
    from ferrum.bench.bench_model import ModelChoice
    from ferrum.bench.compare_phases import compare_phase_named
    from ferrum.bench.compare_report import parse_peers, report_comparison

    require_writable(output, "--json")
    choice = ModelChoice(model, threads, kv_dtype)
    chosen = [compare_phase_named(name) for name in names_of(phases)]

    def on_measure(pair: int, phase: str, engine: str) -> None:
        say(f"round {pair + 1} of {pairs}: {phase}, {engine}")

    report = report_comparison(choice, parse_peers(peers), chosen, pairs, DownloadProgress(), on_measure)
    comparison = report.comparison
    print_line(
        f"{report.measured_on.model} on {report.measured_on.machine.cpu_model}, "
        f"{report.measured_on.threads} threads, {pairs} rounds"
    )
    rows = []
    for one in comparison.phases:
        ratio = one.ratio
        rows.append(
            (
                f"{one.phase.name} / {one.peer}",
                figure(comparison.ours[one.phase.name].median),
                figure(sorted(one.theirs)[len(one.theirs) // 2]),
                f"{ratio.median:.2f}",
                f"{ratio.lowest:.2f} to {ratio.highest:.2f}",
                percent(ratio.relative),
            )
        )
    print_table(("phase / peer", "ours tok/s", "theirs tok/s", "ratio", "lowest to highest", "spread"), rows)
    for name, version in comparison.versions.items():
        print_line(f"{name}: {version}")
    for name, reason in comparison.not_measured.items():
        print_line(f"not measured: {name}: {reason}")
    if output is not None:
        write_json(output, report.as_json())
