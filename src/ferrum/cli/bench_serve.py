"""``ferrum bench serve``: load on any OpenAI-compatible server, seen from a client's side."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ferrum.cli.figure_table import figure, print_line, print_table
from ferrum.cli.json_output import JsonOption, require_writable, write_json, write_text
from ferrum.cli.streams import say
from ferrum.core.errors import InvalidConfig

if TYPE_CHECKING:
    from ferrum.bench.load.load_report import ClosedLoop, LoadReport, PoissonRate


def serve(
    url: Annotated[str, typer.Option("--url", help="http://HOST:PORT, or with the path of the API.")],
    model: Annotated[str, typer.Option("--model", help="The model's name on that server.")],
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Requests at a time.  [default: 16]")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Requests a second, at random moments, instead.")
    ] = None,
    num_requests: Annotated[
        int, typer.Option("--num-requests", min=1, help="Requests in all, warm-up not counted.")
    ] = 64,
    prompt_words: Annotated[
        int, typer.Option("--prompt-words", min=1, help="Random words of a prompt.")
    ] = 128,
    output_tokens: Annotated[int, typer.Option("--output-tokens", min=1, help="Tokens of an answer.")] = 128,
    shared_prefix_words: Annotated[
        int, typer.Option("--shared-prefix-words", min=0, help="Words that prompts have in common, in front.")
    ] = 0,
    num_prefixes: Annotated[
        int, typer.Option("--num-prefixes", min=1, help="Different such beginnings.")
    ] = 1,
    warmups: Annotated[int, typer.Option("--warmups", min=0, help="Requests before the clock starts.")] = 1,
    endpoint: Annotated[str, typer.Option("--endpoint", help="chat or completions.")] = "chat",
    heed_eos: Annotated[
        bool, typer.Option("--heed-eos", help="Let answers end by themselves; else ignore_eos is sent.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of prompts and moments.  [default: random, reported]")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds for an answer.")] = 600.0,
    api_key: Annotated[str | None, typer.Option("--api-key", help="Sent as a bearer token.")] = None,
    output: JsonOption = None,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="File for a page with plots.")
    ] = None,
) -> None:
    """Put load on the server at URL and report times to first token, gaps, rates and errors."""
    from ferrum.bench.load.load_page import load_page
    from ferrum.bench.load.load_report import ServeLoad, run_load
    from ferrum.bench.load.load_shape import LoadShape

    require_writable(output, "--json")
    require_writable(page, "--html")
    if endpoint not in ("chat", "completions"):
        raise InvalidConfig("--endpoint", f"must be chat or completions, not {endpoint!r}")
    shape = LoadShape(
        num_requests=num_requests,
        prompt_words=prompt_words,
        output_tokens=output_tokens,
        seed=secrets.randbits(32) if seed is None else seed,
        shared_prefix_words=shared_prefix_words,
        num_prefixes=num_prefixes,
    )
    load = ServeLoad(
        url=url,
        model=model,
        shape=shape,
        pace=_pace(concurrency, rate),
        num_warmups=warmups,
        is_chat=endpoint == "chat",
        ignores_eos=not heed_eos,
        api_key=api_key,
        timeout_s=timeout,
    )
    say(f"{num_requests} requests, {load.pace}, to {url}")
    report = run_load(load)
    _print(report)
    if output is not None:
        write_json(output, report.as_json())
    if page is not None:
        write_text(page, load_page(report), "--html")


def _pace(concurrency: int | None, rate: float | None) -> ClosedLoop | PoissonRate:
    from ferrum.bench.load.load_report import ClosedLoop, PoissonRate

    if rate is None:
        return ClosedLoop(16 if concurrency is None else concurrency)
    if concurrency is not None:
        raise InvalidConfig("--rate", "and --concurrency are two ways to pace a load; give one of them")
    if rate <= 0:
        raise InvalidConfig("--rate", f"must be above 0, not {rate:g}")
    return PoissonRate(rate)


def _print(report: LoadReport) -> None:
    summary = report.summary
    print_line(
        f"{summary.num_complete} of {summary.num_requests} answers complete in {summary.duration_s:.1f} s: "
        f"{summary.requests_per_second:.2f} requests/s, "
        f"{summary.output_tokens_per_second:.1f} output tokens/s, "
        f"{summary.prompt_tokens_per_second:.1f} prompt tokens/s"
    )
    rows = []
    for name, times in (
        ("time to first token", summary.first_token_ms),
        ("gap between tokens", summary.gap_ms),
        ("whole answer", summary.answer_ms),
    ):
        values = (times.p50, times.p90, times.p99, times.largest) if times else (None,) * 4
        rows.append((name, *(figure(value) for value in values)))
    print_table(("milliseconds", "p50", "p90", "p99", "largest"), rows)
    for kind, count in summary.errors.items():
        print_line(f"{count} failed: {kind}")
    if summary.num_off_length:
        asked = report.load.shape.output_tokens
        print_line(f"{summary.num_off_length} answers did not have the {asked} tokens asked for")
    print_line(f"client: {100 * report.client_cpu_share:.1f} % of a core, seed {report.load.shape.seed}")
