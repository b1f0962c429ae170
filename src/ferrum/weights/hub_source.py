"""Models from the Hugging Face hub, through huggingface_hub: its cache, token and endpoint settings apply.

The library reads HF_HOME, HF_TOKEN and HF_ENDPOINT itself. It is imported only when a hub model is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ferrum.core.errors import DownloadFailed, FerrumError, ModelNotFound
from ferrum.weights.checkpoint_files import COMPANION_PREFIXES, PART_NAME
from ferrum.weights.disk_space import is_disk_full
from ferrum.weights.model_origin import HubOrigin
from ferrum.weights.model_store import FetchedModel
from ferrum.weights.progress_reporter import ProgressReporter

# Smallest that keeps quality first, then what loses least.
PREFERRED_TYPES = ("q4_k_m", "q8_0", "q4_k_s", "q5_k_m", "q6_k", "q4_0", "q4_1", "f16", "bf16")


def fetch_from_hub(origin: HubOrigin, reporter: ProgressReporter) -> FetchedModel:
    """Download the repository's GGUF file, or all parts of it, into the hub's own cache.

    A file that is in the cache already is not downloaded again. Raises ModelNotFound or DownloadFailed.
    """
    try:
        names = _file_names(origin)
        paths = tuple(_download(origin.repository, name, reporter) for name in names)
    except FerrumError:
        raise
    except _hub_failures() as error:
        raise _explain(origin, error) from error
    return FetchedModel(paths, str(origin))


def choose_checkpoint(origin: HubOrigin, repository_files: Sequence[str]) -> tuple[str, ...]:
    """The names to download out of all the repository's files: one file, or every part of a split one.

    Raises ModelNotFound listing the candidates when nothing or more than one thing fits.
    """
    checkpoints = _group_parts(repository_files)
    if not checkpoints:
        raise ModelNotFound(str(origin), "the repository holds no .gguf file")
    if origin.file is not None:
        wanted = origin.file.lower()
        fitting = [names for names in checkpoints if wanted in (name.lower() for name in names)]
        fitting = fitting or [names for names in checkpoints if wanted in _type_words(names[0])]
    else:
        fitting = checkpoints if len(checkpoints) == 1 else _preferred(checkpoints)
    if len(fitting) != 1:
        candidates = ", ".join(names[0] for names in fitting or checkpoints)
        what = "several files fit" if fitting or origin.file is None else "no file fits"
        raise ModelNotFound(
            str(origin), f"{what}; name one as hf:{origin.repository}:FILE out of {candidates}"
        )
    return fitting[0]


def _group_parts(repository_files: Sequence[str]) -> list[tuple[str, ...]]:
    groups: dict[str, list[str]] = {}
    for name in sorted(repository_files):
        base = name.rsplit("/", 1)[-1]
        if base.lower().endswith(".gguf") and not base.lower().startswith(COMPANION_PREFIXES):
            match = PART_NAME.fullmatch(name)
            groups.setdefault(f"{match['stem']}-of-{match['count']}" if match else name, []).append(name)
    return [tuple(names) for names in groups.values()]


def _preferred(checkpoints: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    for storage_type in PREFERRED_TYPES:
        fitting = [names for names in checkpoints if storage_type in _type_words(names[0])]
        if fitting:
            return fitting
    return checkpoints


def _type_words(name: str) -> set[str]:
    """The words of a file name that could be a storage type: "M-Q4_K_M.gguf" -> {"m", "q4_k_m", "gguf"}."""
    return set(name.lower().rsplit("/", 1)[-1].replace("-", ".").split("."))


def _file_names(origin: HubOrigin) -> tuple[str, ...]:
    if origin.file is not None and origin.file.lower().endswith(".gguf"):
        match = PART_NAME.fullmatch(origin.file)
        if match is None:
            return (origin.file,)  # no need to ask for a listing, so a cached file needs no network
        start, stop = match.span("number")
        numbers = range(1, int(match["count"]) + 1)
        return tuple(f"{origin.file[:start]}{number:05d}{origin.file[stop:]}" for number in numbers)
    return choose_checkpoint(origin, _list_files(origin.repository))


def _list_files(repository: str) -> list[str]:
    """The repository's files, or those of it in the cache when the hub cannot be reached."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return [sibling.rfilename for sibling in HfApi().model_info(repository).siblings or []]
    except HfHubHTTPError:
        raise
    except _hub_failures():
        try:
            snapshot = Path(snapshot_download(repository, local_files_only=True))
        except _hub_failures():
            snapshot = None
        if snapshot is None:
            raise
    return [str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file()]


def _require_hub(repository: str) -> None:
    """Raise the HTTP library's error when the hub cannot be reached: a download would retry for long."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    # An answer, even a refusal, is a hub; the download itself knows better what the refusal is about.
    with suppress(HfHubHTTPError):
        HfApi().model_info(repository)


def _download(repository: str, name: str, reporter: ProgressReporter) -> Path:
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    cached = try_to_load_from_cache(repository, name)
    if isinstance(cached, str):
        return Path(cached)
    _require_hub(repository)

    class Bar(_ReportingBar):
        target = reporter
        label = f"downloading {name}"

    bar: Any = Bar  # the library asks for a tqdm class, and uses only what _ReportingBar has
    return Path(hf_hub_download(repository, name, tqdm_class=bar))


class _ReportingBar:
    """What huggingface_hub uses of a tqdm bar, passed on to a ProgressReporter."""

    target: ProgressReporter
    label: str

    def __init__(self, *, total: float | None = None, initial: float = 0, **_: object) -> None:
        self.total = total
        self.n = initial
        self._is_open = True
        self.target.begin(self.label, None if total is None else int(total))

    def update(self, num_bytes: float | None = 1) -> None:
        self.n += num_bytes or 0
        self.target.advance_to(int(self.n))

    def set_description(self, desc: str | None = None, refresh: bool = True) -> None:
        pass

    def set_postfix_str(self, text: str = "", refresh: bool = True) -> None:
        pass

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.target.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _hub_failures() -> tuple[type[Exception], ...]:
    """What huggingface_hub lets through: its own errors, its HTTP library's, the file system's."""
    from huggingface_hub import errors

    # The HTTP library changed between the hub library's versions; the base of its error did not.
    http_errors = [base for base in errors.HfHubHTTPError.__mro__ if base.__name__ == "HTTPError"]
    return (OSError, ValueError, RuntimeError, errors.EntryNotFoundError, *http_errors)


def _explain(origin: HubOrigin, error: Exception) -> FerrumError:
    from huggingface_hub import errors

    source = str(origin)
    if isinstance(error, errors.GatedRepoError):
        return DownloadFailed(source, "its licence must be accepted on the hub first; then set HF_TOKEN")
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFound(source, "the hub has no such repository, or it is private: then set HF_TOKEN")
    if isinstance(error, errors.HFValidationError):
        return ModelNotFound(source, "that is not a repository name")
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return ModelNotFound(source, "the repository has no such file")
    if isinstance(error, errors.HfHubHTTPError):
        return DownloadFailed(source, f"the hub answered with status {error.response.status_code}")
    if isinstance(error, OSError) and is_disk_full(error):
        return DownloadFailed(source, "no space left in the hub's cache; free some or set HF_HOME")
    if isinstance(error, PermissionError):
        return DownloadFailed(source, f"cannot write to the hub's cache: {error}")
    return DownloadFailed(source, "the hub cannot be reached; check the network, the proxy and HF_ENDPOINT")
