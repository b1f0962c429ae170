"""What every loaded model tells, whichever executor will run it."""

from __future__ import annotations

from typing import Protocol

from ferrum.assembly.memory_fit import MemoryFit
from ferrum.assembly.thread_count import ThreadCount
from ferrum.chat.template import ChatTemplate
from ferrum.core.request import ChatPrompt
from ferrum.tokenization.tokenizer import Tokenizer
from ferrum.weights.source_bundle import SourceBundle


class LoadedModel(Protocol):
    """A model with its weights in memory. ``memory`` has the sizes that fit; ``arithmetic`` names whose
    results it gives. Once an executor was made of it, closing the executor frees it.
    """

    @property
    def name(self) -> str: ...
    @property
    def bundle(self) -> SourceBundle: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def chat_template(self) -> ChatTemplate | None: ...
    @property
    def threads(self) -> ThreadCount: ...
    @property
    def memory(self) -> MemoryFit: ...
    @property
    def arithmetic(self) -> str: ...

    def encode_chat(self, prompt: ChatPrompt) -> list[int]:
        """Token ids of the rendered messages. Raises ChatTemplateError or InvalidRequest."""
        ...

    def close(self) -> None:
        """Frees the weights of a model that no executor was made of; idempotent."""
        ...
