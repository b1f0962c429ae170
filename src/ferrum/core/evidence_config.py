"""EvidenceConfig: what is written down of what the engine does; nothing unless it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ferrum.core.errors import InvalidConfig

DEFAULT_JOURNAL_BYTES = 2**30
DEFAULT_BUNDLE_LIMIT = 100


class Entrypoint(StrEnum):
    """Which door an engine stands behind. SYNTHETIC: any that has no name of its own, a test or a script."""

    RUN = "run"
    SERVE = "serve"
    BENCH_SERVE = "bench_serve"
    SYNTHETIC = "synthetic"


class ProfileDetail(StrEnum):
    """STANDARD holds counts and times. DIAGNOSTIC adds token ids of every request, and so what it said."""

    STANDARD = "standard"
    DIAGNOSTIC = "diagnostic"


class BundleOccasion(StrEnum):
    """Which requests leave a replay bundle: those that failed, or all."""

    FAILED = "failed"
    ALL = "all"


class BundleTokenIds(StrEnum):
    """KEPT: a bundle can be replayed, and whoever has the tokenizer can read it. HASHED: neither."""

    KEPT = "kept"
    HASHED = "hashed"


@dataclass(frozen=True, slots=True)
class EvidenceConfig:
    """What is written down, and where.

    profile_jsonl          file to which resource and execution events are appended, a JSON object a line
    scheduler_trace_jsonl  file to which every step's plan and queues are appended; may be the same file
    journal_limit_bytes    a file of either that would outgrow this is put aside as FILE.1, in the place of
                           an older one, and a new one begins
    profile_detail         standard, or diagnostic with token ids
    bundle_dir             folder that gets a replay bundle, a folder of its own, for requests that end
    bundle_occasion        which requests: failed, or all
    bundle_token_ids       kept, so that the bundle can be replayed, or hashed
    bundle_limit           most bundles an engine writes, so that a fault cannot fill the disk
    entrypoint             which door the engine stands behind, as written into every event
    """

    profile_jsonl: str | None = None
    scheduler_trace_jsonl: str | None = None
    profile_detail: ProfileDetail = ProfileDetail.STANDARD
    bundle_dir: str | None = None
    bundle_occasion: BundleOccasion = BundleOccasion.FAILED
    bundle_token_ids: BundleTokenIds = BundleTokenIds.KEPT
    bundle_limit: int = DEFAULT_BUNDLE_LIMIT
    entrypoint: Entrypoint = Entrypoint.SYNTHETIC
    journal_limit_bytes: int = DEFAULT_JOURNAL_BYTES

    def __post_init__(self) -> None:
        for name in ("profile_jsonl", "scheduler_trace_jsonl", "bundle_dir"):
            path = getattr(self, name)
            if path is not None and (not isinstance(path, str) or not path or "\0" in path):
                raise InvalidConfig(f"evidence.{name}", f"must be a path, not {path!r}")
        for name, kind in _CHOICES.items():
            if not isinstance(getattr(self, name), kind):
                known = " or ".join(kind)
                raise InvalidConfig(f"evidence.{name}", f"must be {known}, not {getattr(self, name)!r}")
        for name in ("bundle_limit", "journal_limit_bytes"):
            limit = getattr(self, name)
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
                raise InvalidConfig(f"evidence.{name}", f"must be a count of at least 1, not {limit!r}")

    @property
    def is_empty(self) -> bool:
        """Whether nothing is written."""
        return self.profile_jsonl is None and self.scheduler_trace_jsonl is None and self.bundle_dir is None


_CHOICES: dict[str, type[StrEnum]] = {
    "profile_detail": ProfileDetail,
    "bundle_occasion": BundleOccasion,
    "bundle_token_ids": BundleTokenIds,
    "entrypoint": Entrypoint,
}
