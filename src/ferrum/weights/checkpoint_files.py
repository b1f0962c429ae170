"""Which files make up a checkpoint: one GGUF file, or the parts of a split one. Looks at names only."""

from __future__ import annotations

import re
from pathlib import Path

from ferrum.core.errors import MalformedCheckpoint, ModelNotFound

# As llama.cpp's gguf-split names them: STEM-00001-of-00003.gguf.
PART_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
# Vision and audio projectors lie beside a model without being one.
COMPANION_PREFIXES = ("mmproj",)


def checkpoint_files(path: Path) -> tuple[Path, ...]:
    """The files of the checkpoint at ``path`` in order; it is a file, any part of a split one, or a folder.

    Raises ModelNotFound when there is none or more than one, MalformedCheckpoint naming the missing parts.
    """
    try:
        if path.is_dir():
            path = _only_checkpoint(path)
        elif not path.exists():
            raise ModelNotFound(str(path), "there is no such file or folder")
    except OSError as error:
        raise ModelNotFound(str(path), f"cannot be opened: {error.strerror}") from error
    match = PART_NAME.fullmatch(path.name)
    if match is None:
        return (path,)
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count:
        raise MalformedCheckpoint(str(path), f"its name says part {number} of {count}")
    parts = tuple(_part_path(path, match, index) for index in range(1, count + 1))
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise MalformedCheckpoint(str(path), f"{len(missing)} of its {count} parts are missing: {shown}")
    return parts


def _part_path(path: Path, match: re.Match[str], number: int) -> Path:
    start, stop = match.span("number")
    return path.with_name(f"{path.name[:start]}{number:05d}{path.name[stop:]}")


def _only_checkpoint(folder: Path) -> Path:
    """The folder's only GGUF file, or any part of its only split one."""
    checkpoints: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() != ".gguf" or file.name.lower().startswith(COMPANION_PREFIXES):
            continue
        match = PART_NAME.fullmatch(file.name)
        checkpoints.setdefault(f"{match['stem']}-of-{match['count']}" if match else file.name, file)
    if not checkpoints and any(folder.glob("*.safetensors")):
        raise ModelNotFound(
            str(folder), "the folder holds safetensors and no .gguf file; run it with --executor transformers"
        )
    if not checkpoints:
        raise ModelNotFound(str(folder), "the folder holds no .gguf file")
    if len(checkpoints) > 1:
        names = ", ".join(file.name for file in checkpoints.values())
        raise ModelNotFound(str(folder), f"the folder holds several models, name one of them: {names}")
    return next(iter(checkpoints.values()))
