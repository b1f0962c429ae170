"""``ferrum replay-bundle``: asks again what a replay bundle asked, and compares token by token."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ferrum.cli.json_output import require_writable, write_text
from ferrum.cli.model_options import ThreadsOption
from ferrum.core.collector_pause import collector_paused

if TYPE_CHECKING:
    from ferrum.evidence.replay import ReplayReport


def replay_bundle(
    bundle: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the bundle.")],
    model: Annotated[
        str | None,
        typer.Option("--model", help="Where the model is now.  [default: where it was when it was recorded]"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="File for the report as JSON.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    threads: ThreadsOption = None,
) -> None:
    """Run the request of a replay bundle again, alone. Exits 0 when it gives the same tokens, else 1."""
    require_writable(out, "--out")
    with collector_paused():
        from ferrum.cli.replay_session import replay_session

    report = replay_session(bundle, model, threads)
    written = json.dumps(asdict(report), indent=2) + "\n"
    if out is not None:
        write_text(out, written, "--out")
    sys.stdout.write(written if as_json else "".join(f"{line}\n" for line in report_lines(report)))
    raise typer.Exit(0 if report.is_same else 1)


def report_lines(report: ReplayReport) -> list[str]:
    """The verdict, what it rests on, and where the replay left the record."""
    compared = f"{report.num_compared_tokens} tokens"
    if report.num_compared_digests:
        compared += f" and {report.num_compared_digests} digests of logits"
    lines = [f"{report.request_id}: {'the same' if report.is_same else 'DIFFERENT'} ({compared} compared)"]
    if report.difference is not None:
        different = report.difference
        lines.append(
            f"first difference: {different.what} {different.index}: "
            f"{_shown(different.recorded)} recorded, {_shown(different.replayed)} now"
        )
    if report.recorded_end is not report.replayed_end:
        lines.append(f"ended with {report.recorded_end}, now with {report.replayed_end}")
    if report.failure is not None:
        lines.append(f"the replay failed: {report.failure}")
    return lines + [f"note: {note}" for note in report.notes]


def _shown(value: int | None) -> str:
    return "nothing" if value is None else str(value)
