"""``ferrum list``: the models fetched so far."""

from __future__ import annotations

from ferrum import environment
from ferrum.weights.model_store import ModelStore, StoredModel

HEADINGS = ("NAME", "SIZE", "FORMAT", "STATE", "MODIFIED")


def list_models() -> None:
    """Print name, size, format, state and time of every fetched model."""
    models = ModelStore(environment.model_directory()).list()
    rows = [HEADINGS, *(_row(model) for model in models)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _row(model: StoredModel) -> tuple[str, ...]:
    modified = model.modified.astimezone().strftime("%Y-%m-%d %H:%M")
    return (model.name, format_bytes(model.num_bytes), model.format, model.state, modified)


def format_bytes(num_bytes: int) -> str:
    """Decimal units, as disks are sold: 98362432 -> "98.4 MB"."""
    if num_bytes >= 10**9:
        return f"{num_bytes / 1e9:.1f} GB"
    if num_bytes >= 10**6:
        return f"{num_bytes / 1e6:.1f} MB"
    return f"{num_bytes / 1e3:.1f} kB"
