"""ReplayBundle: a bundle read back, checked file by file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ferrum.core.completion_boundary import boundary_from_mapping
from ferrum.core.errors import FerrumError, InvalidRequest, UnusableBundle
from ferrum.core.evidence_config import Entrypoint
from ferrum.core.request import FinishReason
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.token_trace import hash_token_ids
from ferrum.evidence import bundle_files as files
from ferrum.evidence.backend_selection import BackendSelection

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class ReplayBundle:
    """What is needed to ask the same again, and what was answered.

    ``prompt_ids`` and ``output_ids`` are None in a bundle that holds only their hashes. ``num_stops``: stop
    strings the request had, of which a bundle keeps hashes only. ``config`` is plain values, as written.
    """

    path: Path
    request_id: str
    backend: BackendSelection
    config: Mapping[str, Any]
    sampling: SamplingParams
    num_stops: int
    prompt_ids: tuple[int, ...] | None
    output_ids: tuple[int, ...] | None
    logit_digests: tuple[int, ...]
    finish_reason: FinishReason


def read_bundle(path: Path) -> ReplayBundle:
    """Raises UnusableBundle, naming the file and what is wrong in it."""
    contents = {name: _read_file(path, name) for name in files.REQUIRED}
    request = contents[files.REQUEST]
    _check_request(path, request)
    request_id = request["request_id"]
    for name in (files.PROMPT_IDS, files.SAMPLING, files.OUTPUT_IDS, files.OUTPUT_SCAN):
        if contents[name].get("request_id") != request_id:
            raise UnusableBundle(str(path), name, f"request_id must be {request_id!r} as in {files.REQUEST}")
    _check_scan_and_command(path, contents)
    sampling = contents[files.SAMPLING]
    return ReplayBundle(
        path=path,
        request_id=request_id,
        backend=_built(path, files.BACKEND, lambda: BackendSelection(**contents[files.BACKEND])),
        config=contents[files.CONFIG],
        sampling=_built(path, files.SAMPLING, lambda: _sampling(sampling)),
        num_stops=_built(path, files.SAMPLING, lambda: len(sampling["stop"])),
        prompt_ids=_token_ids(path, files.PROMPT_IDS, contents),
        output_ids=_token_ids(path, files.OUTPUT_IDS, contents),
        logit_digests=_built(
            path, files.OUTPUT_IDS, lambda: tuple(map(int, contents[files.OUTPUT_IDS]["logit_digests"] or ()))
        ),
        finish_reason=_built(path, files.REQUEST, lambda: FinishReason(request["finish_reason"])),
    )


def _read_file(path: Path, name: str) -> Any:
    try:
        text = (path / name).read_text(encoding="utf-8")
        content = text if name == files.OUTPUT_TEXT else json.loads(text)
    except OSError as error:
        raise UnusableBundle(str(path), name, f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UnusableBundle(str(path), name, f"is no JSON: {error}") from None
    if name != files.OUTPUT_TEXT and not isinstance(content, dict):
        raise UnusableBundle(str(path), name, f"must hold an object, not {type(content).__name__}")
    return content


def _check_request(path: Path, request: Mapping[str, Any]) -> None:
    problem = None
    if request.get("schema_version") != files.SCHEMA_VERSION:
        problem = f"schema_version must be {files.SCHEMA_VERSION}, not {request.get('schema_version')!r}"
    elif request.get("sanitized") is not True:
        problem = "sanitized must be true: a bundle holds no texts"
    elif request.get("entrypoint") not in list(Entrypoint):
        problem = f"entrypoint must be one of {', '.join(Entrypoint)}, not {request.get('entrypoint')!r}"
    elif not isinstance(request.get("request_id"), str):
        problem = "request_id must be a text"
    if problem is not None:
        raise UnusableBundle(str(path), files.REQUEST, problem)


def _check_scan_and_command(path: Path, contents: Mapping[str, Any]) -> None:
    if not isinstance(contents[files.OUTPUT_SCAN].get("bad_output"), bool):
        raise UnusableBundle(str(path), files.OUTPUT_SCAN, "bad_output must be true or false")
    argv = contents[files.COMMAND].get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(each, str) for each in argv):
        raise UnusableBundle(str(path), files.COMMAND, "argv must be a list of texts, not an empty one")


def _token_ids(path: Path, name: str, contents: Mapping[str, Any]) -> tuple[int, ...] | None:
    content = contents[name]
    token_ids = content.get("token_ids")
    if token_ids is None:
        return None
    if not isinstance(token_ids, list) or not all(
        type(each) is int and 0 <= each < 2**32 for each in token_ids
    ):
        raise UnusableBundle(str(path), name, "token_ids must be a list of ids, or null")
    if content.get("token_count") != len(token_ids):
        problem = f"token_count is {content.get('token_count')!r}, but there are {len(token_ids)} token_ids"
        raise UnusableBundle(str(path), name, problem)
    if content.get("sha256") != hash_token_ids(token_ids):
        raise UnusableBundle(str(path), name, "sha256 is not that of the token_ids: one of them was changed")
    return tuple(token_ids)


_LISTS = (
    "stop_token_ids",
    "dry_sequence_breakers",
    "allowed_token_ids",
    "forbidden_first_texts",
    "control_texts",
)


def _sampling(content: Mapping[str, Any]) -> SamplingParams:
    """Bundles keep no texts of the caller: what stop strings cut is known, not what bad words prevented."""
    if content.get("bad_words"):
        raise InvalidRequest("their texts are not kept, so it cannot be asked again", param="bad_words")
    kept = {name: value for name, value in content.items() if name not in ("request_id", "stop", "bad_words")}
    kept["completion_boundary"] = boundary_from_mapping(kept.get("completion_boundary"))
    for name in _LISTS:
        if isinstance(kept.get(name), list):
            kept[name] = tuple(kept[name])
    if isinstance(kept.get("logit_bias"), dict):
        kept["logit_bias"] = {int(token_id): bias for token_id, bias in kept["logit_bias"].items()}
    return SamplingParams(**kept)


def _built(path: Path, name: str, build: Callable[[], _Value]) -> _Value:
    """``build()``; whatever is wrong in the file it reads becomes one line."""
    try:
        return build()
    except InvalidRequest as error:
        raise UnusableBundle(str(path), name, str(error)) from None
    except KeyError as error:
        raise UnusableBundle(str(path), name, f"has no {error}") from None
    except (TypeError, ValueError, FerrumError) as error:
        raise UnusableBundle(str(path), name, str(error)) from None
