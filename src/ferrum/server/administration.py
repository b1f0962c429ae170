"""Administration: what whoever has the admin key may do beside asking questions."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.engine.prefix_pins import PrefixPins
from ferrum.engine.saved_pins import SavedPins
from ferrum.server.admin_key import AdminKey


@dataclass(frozen=True, slots=True)
class Administration:
    """``saved``: None where no folder was named to save into."""

    key: AdminKey
    pins: PrefixPins
    saved: SavedPins | None = None
