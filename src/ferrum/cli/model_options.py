"""Options that every command with a model has, and what they mean for loading. Imports nothing heavy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ferrum.core.errors import InvalidConfig
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.token_policy_level import TokenPolicyLevel

if TYPE_CHECKING:
    from ferrum.assembly.loaded_model import LoadedModel
    from ferrum.assembly.memory_fit import MemoryFit

MEBIBYTE = 1024 * 1024

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
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Most memory to use, as 1.5GiB or 800MB.  [default: what is available, with room for others]",
    ),
]
KvDtypeOption = Annotated[
    KvDtype, typer.Option("--kv-dtype", help="How the KV cache is kept; int8 takes half the memory.")
]
PrefixCacheOption = Annotated[
    bool,
    typer.Option(
        "--prefix-cache/--no-prefix-cache",
        "--enable-prefix-caching/--no-enable-prefix-caching",
        help="Keep computed prompts and share them between requests that begin alike.",
    ),
]
ExecutorOption = Annotated[
    str,
    typer.Option(
        "--executor",
        help="llm = the model's plan on Ferrum's own runtime; transformers = any causal LM in a Hugging Face "
        "folder, as transformers computes it (slower; needs the extra 'transformers').",
    ),
]
TemplateOption = Annotated[
    Path | None, typer.Option("--chat-template", help="Jinja file that replaces the model's chat template.")
]

TokenPolicyOption = Annotated[
    TokenPolicyLevel,
    typer.Option(
        "--token-policy",
        help="Tokens kept out of answers: vocabulary, ids that stand for nothing; strict, also unknown, "
        "padding, unused and unnamed control tokens and broken text; off, none.",
    ),
]


def read_template(path: Path | None) -> str | None:
    """The text of ``--chat-template``. Raises InvalidConfig when it cannot be read."""
    return None if path is None else read_text_file("--chat-template", path)


def read_text_file(option: str, path: Path) -> str:
    """The text of the file that ``option`` names.

    Raises InvalidConfig when it cannot be read, or has no end worth waiting for (/dev/zero).
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS + 1)
    except OSError as error:
        raise InvalidConfig(option, f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidConfig(option, f"{path} is not UTF-8 text") from None
    if len(text) > _MOST_CHARACTERS:
        raise InvalidConfig(option, f"{path} has more than {_MOST_CHARACTERS} characters")
    return text


# Of a template, a schema, a grammar: far more than any has.
_MOST_CHARACTERS = 16 * 2**20

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def read_size(text: str | None, option: str = "--memory") -> int | None:
    """Bytes that ``option`` gives: a number, then nothing or B, kB, MB, GB, KiB, MiB, GiB, whatever the case.

    Raises InvalidConfig for anything else, and for less than a byte.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(|[kmg]i?)b?", text.strip().lower())
    num_bytes = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if num_bytes < 1:
        raise InvalidConfig(option, f"{text!r} is no size; write 2GiB, 1.5GB, 800MiB or a number of bytes")
    return num_bytes


def start_up_lines(model: LoadedModel) -> list[str]:
    """What was chosen for ``model`` and why, one fact a line."""
    return [
        threads_line(model),
        memory_line(model.memory),
        f"arithmetic: {model.arithmetic}",
    ]


def threads_line(model: LoadedModel) -> str:
    return f"threads: {model.threads.count}, {model.threads.reason}"


def memory_line(memory: MemoryFit) -> str:
    """Every size that depends on memory, and what it depends on, in one line."""
    budget = memory.budget
    limit = f" of {budget.num_bytes / MEBIBYTE:.0f} MiB, {budget.source}" if budget is not None else ""
    kv_mebibytes, mebibytes = memory.kv_bytes / MEBIBYTE, memory.total_bytes / MEBIBYTE
    return (
        f"{context_line(memory)}; sequences: {_told(memory, 'sequences')}; "
        f"step: {_told(memory, 'batch_tokens', ' tokens')}; "
        f"KV cache: {memory.num_blocks} blocks of {memory.block_tokens} tokens, {kv_mebibytes:.0f} MiB; "
        f"memory: {mebibytes:.0f} MiB{limit}"
    )


def context_line(memory: MemoryFit) -> str:
    return f"context: {_told(memory, 'context_length', ' tokens')}"


def _told(memory: MemoryFit, name: str, unit: str = "") -> str:
    """A size, and what it was to be if memory did not allow that."""
    count = getattr(memory.sizes, name)
    wished = {change.name: change.wished for change in memory.changes}.get(name)
    return f"{count}{unit}" if wished is None else f"{count}{unit} (of {wished}: memory)"
