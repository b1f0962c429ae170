"""ServedModels: the public names the one loaded model answers to."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.core.errors import InvalidConfig
from ferrum.server.wire_errors import UnknownModel


@dataclass(frozen=True, slots=True)
class ServedModels:
    """``names[0]`` is the name used in answers when the caller named none. ``created`` is in Unix seconds.

    Raises InvalidConfig for an empty name: no client could ask for it.
    """

    names: tuple[str, ...]
    created: int
    context_length: int

    def __post_init__(self) -> None:
        if not self.names or not all(name.strip() for name in self.names):
            raise InvalidConfig("served_model_name", "must not be empty")

    def resolve(self, name: str | None) -> str:
        """The name to answer under. Raises UnknownModel; a request without a model means the one there is."""
        if name is None:
            return self.names[0]
        if name not in self.names:
            raise UnknownModel(name, self.names)
        return name

    def card(self, name: str) -> dict[str, object]:
        """OpenAI's model object; ``max_model_len`` is the context length of one request."""
        return {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "ferrum",
            "max_model_len": self.context_length,
        }
