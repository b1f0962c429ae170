"""Options that say what a command writes down of what its engine does. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ferrum.cli.model_options import read_size
from ferrum.core.evidence_config import (
    DEFAULT_BUNDLE_LIMIT,
    DEFAULT_JOURNAL_BYTES,
    BundleOccasion,
    BundleTokenIds,
    Entrypoint,
    EvidenceConfig,
    ProfileDetail,
)

ProfileOption = Annotated[
    Path | None,
    typer.Option(
        "--profile-jsonl",
        metavar="FILE",
        help="Append what happens to requests and resources, as JSON lines.",
    ),
]
SchedulerTraceOption = Annotated[
    Path | None,
    typer.Option(
        "--scheduler-trace-jsonl",
        metavar="FILE",
        help="Append every step's plan and queues, as JSON lines; may be the same file.",
    ),
]
ProfileDetailOption = Annotated[
    ProfileDetail,
    typer.Option("--profile-detail", help="diagnostic adds token ids, and so what requests said."),
]
JournalLimitOption = Annotated[
    str | None,
    typer.Option(
        "--journal-limit",
        metavar="SIZE",
        help="A journal that would outgrow this is put aside as FILE.1, in the place of an older one.  "
        "[default: 1GiB]",
    ),
]
BundleDirOption = Annotated[
    Path | None,
    typer.Option(
        "--bundle-dir", metavar="DIR", help="Leave a bundle here that 'ferrum replay-bundle' runs again."
    ),
]
BundleRequestsOption = Annotated[
    BundleOccasion, typer.Option("--bundle-requests", help="Which requests leave a bundle.")
]
BundleTokenIdsOption = Annotated[
    BundleTokenIds,
    typer.Option("--bundle-token-ids", help="hashed bundles say less and cannot be replayed."),
]
BundleLimitOption = Annotated[
    int,
    typer.Option("--bundle-limit", help="Most bundles that are left, so that a fault cannot fill a disk."),
]


def evidence_config(
    entrypoint: Entrypoint,
    profile_jsonl: Path | None,
    scheduler_trace_jsonl: Path | None,
    profile_detail: ProfileDetail,
    bundle_dir: Path | None,
    bundle_requests: BundleOccasion,
    bundle_token_ids: BundleTokenIds,
    journal_limit: str | None = None,
    bundle_limit: int = DEFAULT_BUNDLE_LIMIT,
) -> EvidenceConfig:
    """Raises InvalidConfig for a limit that is none."""
    return EvidenceConfig(
        profile_jsonl=_text(profile_jsonl),
        scheduler_trace_jsonl=_text(scheduler_trace_jsonl),
        profile_detail=profile_detail,
        bundle_dir=_text(bundle_dir),
        bundle_occasion=bundle_requests,
        bundle_token_ids=bundle_token_ids,
        journal_limit_bytes=read_size(journal_limit, "--journal-limit") or DEFAULT_JOURNAL_BYTES,
        bundle_limit=bundle_limit,
        entrypoint=entrypoint,
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
