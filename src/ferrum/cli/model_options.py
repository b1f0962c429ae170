"""Options that every command with a model has, and what they mean for loading. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ferrum.core.errors import InvalidConfig
from ferrum.core.kv_dtype import KvDtype

if TYPE_CHECKING:
    from ferrum.assembly.model_loading import LoadedModel

ModelArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A short name, a .gguf file, hf:ORG/REPO[:FILE] or pypi:PACKAGE."),
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", help="Compute threads.  [default: one for each core it may use]")
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        "--context-length", help="Most tokens of prompt and answer.  [default: the model's, if memory allows]"
    ),
]
KvDtypeOption = Annotated[
    KvDtype, typer.Option("--kv-dtype", help="How the KV cache is kept; int8 takes half the memory.")
]
TemplateOption = Annotated[
    Path | None, typer.Option("--chat-template", help="Jinja file that replaces the model's chat template.")
]


def read_template(path: Path | None) -> str | None:
    """The text of ``--chat-template``. Raises InvalidConfig when it cannot be read."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidConfig("--chat-template", f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidConfig("--chat-template", f"{path} is not UTF-8 text") from None


def start_up_lines(model: LoadedModel) -> list[str]:
    """What was chosen for ``model`` and why, one fact a line."""
    kv = model.kv
    shrunk = f" (of the model's {kv.shrunk_from}: memory)" if kv.shrunk_from is not None else ""
    return [
        f"threads: {model.threads.count}, {model.threads.reason}",
        f"context: {kv.context_length} tokens{shrunk}",
        f"KV cache: {kv.num_bytes / 2**20:.0f} MiB, {kv.num_blocks * model.runtime.block_tokens} tokens",
        f"arithmetic: {model.runtime.numerics_id}",
    ]
