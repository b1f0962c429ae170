"""``ferrum bench``: measurements that a claim can name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ferrum import environment
from ferrum.assembly.thread_count import choose_thread_count, read_cpu_limits
from ferrum.cli.download_progress import DownloadProgress
from ferrum.cli.model_options import ModelArgument, ThreadsOption
from ferrum.cli.streams import say
from ferrum.core.errors import InvalidConfig
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
    output: Annotated[Path | None, typer.Option("--json", help="File for the figures as JSON.")] = None,
    threads: ThreadsOption = None,
) -> None:
    """Score TEXT in windows of 512 tokens, second halves: the native runtime beside float32 arithmetic."""
    from ferrum.bench.perplexity_report import report_perplexity  # slow to import: NumPy and the kernels

    num_threads = choose_thread_count(read_cpu_limits(), threads).count
    resolved = open_model(model, ModelStore(environment.model_directory()), DownloadProgress())

    def on_window(done: int, total: int) -> None:
        say(f"window {done} of {total}")

    report = report_perplexity(resolved, text, num_threads, environment.cache_directory(), on_window)
    print(f"perplexity  native {report.perplexity_native:.4f}  float {report.perplexity_float:.4f}")
    print(f"kl_mean     {report.kl_mean:.6f} over {report.tokens_scored} tokens")
    if output is not None:
        _write(output, report.as_json())


def _write(path: Path, figures: dict[str, object]) -> None:
    try:
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidConfig("--json", f"cannot write {path}: {error.strerror}") from None
