"""``ferrum bench throughput``: many prompts at once, without a server."""

from __future__ import annotations

from typing import Annotated

import typer

from ferrum.cli.download_progress import DownloadProgress
from ferrum.cli.figure_table import figure, percent, print_line, print_table
from ferrum.cli.json_output import JsonOption, require_writable, write_json
from ferrum.cli.list_options import counts_of
from ferrum.cli.model_options import KvDtypeOption, ModelArgument, ThreadsOption
from ferrum.cli.streams import say
from ferrum.core.kv_dtype import KvDtype


def throughput(
    model: ModelArgument,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", min=2, help="Tokens of a prompt.")] = 128,
    output_tokens: Annotated[
        int, typer.Option("--output-tokens", min=1, help="Tokens of an answer; its end is ignored.")
    ] = 128,
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Requests at once, comma-separated.")
    ] = "1,4,16,32",
    depth: Annotated[
        int, typer.Option("--depth", min=0, help="Tokens of context before the prompt, prefilled too.")
    ] = 0,
    repetitions: Annotated[
        int, typer.Option("--repetitions", min=1, help="Rounds; medians are reported.")
    ] = 5,
    output: JsonOption = None,
    threads: ThreadsOption = None,
    kv_dtype: KvDtypeOption = KvDtype.F16,
) -> None:
    """Answer random prompts with MODEL, several at once, and report tokens per second and gaps."""
    from ferrum.bench.bench_model import ModelChoice
    from ferrum.bench.throughput import ThroughputLoad, report_throughput

    require_writable(output, "--json")
    choice = ModelChoice(model, threads, kv_dtype)
    load = ThroughputLoad(prompt_tokens, output_tokens, depth)

    def on_run(repetition: int, count: int) -> None:
        say(f"repetition {repetition + 1} of {repetitions}: {count} at once")

    counts = counts_of(concurrency, "--concurrency")
    report = report_throughput(choice, load, counts, repetitions, DownloadProgress(), on_run)
    rows = []
    for row in report.rows:
        gaps, decode = row.typical.gaps_ms, row.decode_rate
        rows.append(
            (
                str(row.concurrency),
                figure(row.prefill_rate.median),
                figure(decode.median if decode else None),
                figure(row.output_rate.median),
                percent(row.output_rate.relative),
                figure(gaps.p50 if gaps else None),
                figure(gaps.p99 if gaps else None),
            )
        )
    measured_on = report.measured_on
    print_line(
        f"{measured_on.model} on {measured_on.machine.cpu_model}, {measured_on.threads} threads: prompts of "
        f"{depth + prompt_tokens} tokens, answers of {output_tokens}"
    )
    headings = (
        "at once",
        "prefill tok/s",
        "decode tok/s",
        "output tok/s",
        "spread",
        "gap p50 ms",
        "gap p99 ms",
    )
    print_table(headings, rows)
    if output is not None:
        write_json(output, report.as_json())
