"""Options for prompts that stay computed: who may pin them, where they are saved. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from ferrum.cli.model_options import read_size, read_text_file
from ferrum.core.errors import InvalidConfig

_DEFAULT_BYTES = 4 * 2**30

AdminKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--admin-key-file",
        metavar="FILE",
        help="File with the key for /admin/pins, which is off without one.  [default: FERRUM_ADMIN_KEY]",
    ),
]
PinDirOption = Annotated[
    Path | None,
    typer.Option("--pin-dir", metavar="DIR", help="Folder into which pinned prompts can be saved."),
]
PinDirSizeOption = Annotated[
    str | None,
    typer.Option(
        "--pin-dir-size",
        metavar="SIZE",
        help="Most bytes in it; the least recently used are removed.  [default: 4GiB]",
    ),
]
RestorePinsOption = Annotated[
    bool,
    typer.Option("--restore-pins", help="Pin at start-up what was saved there, as far as there is room."),
]


@dataclass(frozen=True, slots=True)
class PinSettings:
    """``admin_key`` None: nobody may pin over HTTP. ``folder`` None: nothing is saved or restored.

    Raises InvalidConfig for options that would have no effect.
    """

    admin_key: str | None = field(default=None, repr=False)
    folder: Path | None = None
    most_bytes: int = _DEFAULT_BYTES
    restores: bool = False

    def __post_init__(self) -> None:
        if self.restores and self.folder is None:
            raise InvalidConfig("--restore-pins", "from where? Give --pin-dir DIR")
        if self.folder is not None and self.admin_key is None and not self.restores:
            raise InvalidConfig(
                "--pin-dir", "nobody could save into it; give --admin-key-file FILE, or --restore-pins"
            )


def pin_settings(
    admin_key_file: Path | None,
    admin_key: str | None,
    pin_dir: Path | None,
    pin_dir_size: str | None,
    *,
    restores: bool,
    has_prefix_cache: bool,
) -> PinSettings:
    """``admin_key`` is what the environment says; a file wins. Raises InvalidConfig."""
    if pin_dir is not None and not has_prefix_cache:
        raise InvalidConfig(
            "--pin-dir", "prompts are pinned in the prefix cache; leave --no-prefix-cache out"
        )
    if pin_dir_size is not None and pin_dir is None:
        raise InvalidConfig("--pin-dir-size", "of which folder? Give --pin-dir DIR")
    if admin_key_file is not None:
        admin_key = read_text_file("--admin-key-file", admin_key_file).strip()
    most_bytes = read_size(pin_dir_size, "--pin-dir-size") or _DEFAULT_BYTES
    return PinSettings(admin_key, pin_dir, most_bytes, restores)
