"""``ferrum bench``: measurements that a claim can name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ferrum import environment
from ferrum.assembly.thread_count import choose_thread_count, read_cpu_limits
from ferrum.cli import bench_compare, bench_profile, bench_roofline, bench_serve, bench_throughput
from ferrum.cli.download_progress import DownloadProgress
from ferrum.cli.json_output import JsonOption, write_json
from ferrum.cli.model_options import KvDtypeOption, ModelArgument, ThreadsOption
from ferrum.cli.streams import say
from ferrum.core.kv_dtype import KvDtype
from ferrum.weights.model_store import ModelStore
from ferrum.weights.open_model import open_model

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def bench() -> None:
    """Measure a model: is it right, is it fast."""


@app.command()
def perplexity(
    model: ModelArgument,
    text: Annotated[Path, typer.Option("--text", help="UTF-8 file of at least 512 tokens.")],
    output: JsonOption = None,
    threads: ThreadsOption = None,
    kv_dtype: KvDtypeOption = KvDtype.F16,
) -> None:
    """Score TEXT in windows of 512 tokens, second halves: the native runtime beside float32 arithmetic."""
    from ferrum.bench.perplexity_report import report_perplexity  # slow to import: NumPy and the kernels

    num_threads = choose_thread_count(read_cpu_limits(), threads).count
    resolved = open_model(model, ModelStore(environment.model_directory()), DownloadProgress())

    def on_window(done: int, total: int) -> None:
        say(f"window {done} of {total}")

    report = report_perplexity(
        resolved, text, num_threads, environment.cache_directory(), on_window, kv_dtype
    )
    print(f"perplexity  native {report.perplexity_native:.4f}  float {report.perplexity_float:.4f}")
    print(f"kl_mean     {report.kl_mean:.6f} over {report.tokens_scored} tokens")
    if output is not None:
        write_json(output, report.as_json())


app.command()(bench_roofline.roofline)
app.command()(bench_throughput.throughput)
app.command()(bench_serve.serve)
app.command()(bench_compare.compare)
app.command()(bench_profile.profile)
