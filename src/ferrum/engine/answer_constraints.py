"""Puts a request's constraint where its answer is chosen and read. Knows prompts, no grammars."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ferrum.constraints.vocabulary_tokenizer import VocabularyTokenizer
from ferrum.core.constraint import Constraint
from ferrum.core.processor_loans import ProcessorLoans
from ferrum.core.request import ChatPrompt, InferenceRequest
from ferrum.core.token_gate import join_gates
from ferrum.scheduling.sequence import SequenceSpec

if TYPE_CHECKING:
    from ferrum.constraints.constraint_compiler import CompiledConstraint, ConstraintCompiler

# Where a chat template leaves the assistant's turn in the middle of its reasoning, the value comes after it.
_OPENING, _CLOSING = "<think>", "</think>"
_TAIL_TOKENS = 256

# Tokens in whose places no other may come are not chosen but taken, and computed together. So many at most: a
# step must stay short.
MOST_FORCED = 15


class AnswerConstraints:
    """Compiles what requests ask for; any thread and loop may use it. ``close`` ends its workers.

    ``most_forced``: tokens that may follow a chosen one without a choice; 0 where logits are looked at.
    ``loans``: where compiling gets its processor from.
    """

    def __init__(
        self,
        tokenizer: VocabularyTokenizer,
        vocabulary_size: int,
        most_forced: int = MOST_FORCED,
        loans: ProcessorLoans | None = None,
    ) -> None:
        self._loans = loans or ProcessorLoans()
        self._most_forced = most_forced
        self._tokenizer = tokenizer
        self._vocabulary_size = vocabulary_size
        self._lock = threading.Lock()
        self._made: ConstraintCompiler | None = None
        self._is_closed = False

    def apply(self, request: InferenceRequest, spec: SequenceSpec) -> SequenceSpec:
        """``spec`` with its constraint, if there is one; waits for the compilation on this thread.

        Raises InvalidConstraint and ConstraintTooComplex.
        """
        constraint = self._constraint(request, spec)
        return spec if constraint is None else self._constrained(spec, self._compiler().compile(constraint))

    async def apply_beside(self, request: InferenceRequest, spec: SequenceSpec) -> SequenceSpec:
        """As ``apply``, while the calling loop goes on."""
        constraint = self._constraint(request, spec)
        if constraint is None:
            return spec
        return self._constrained(spec, await self._compiler().compile_beside(constraint))

    def warm_up(self) -> None:
        """Prepares beside what the first constraint needs; after ``close`` it does nothing."""
        if not self._is_closed:
            self._compiler().warm_up()

    def close(self) -> None:
        self._is_closed = True
        if self._made is not None:
            self._made.close()

    def _compiler(self) -> ConstraintCompiler:
        with self._lock:
            if self._made is None:
                # The grammar engine and the validator are not part of starting up.
                from ferrum.constraints.constraint_compiler import ConstraintCompiler

                self._made = ConstraintCompiler(self._tokenizer, self._vocabulary_size, loans=self._loans)
            return self._made

    def _constraint(self, request: InferenceRequest, spec: SequenceSpec) -> Constraint | None:
        constraint = request.sampling.constraint
        if constraint is None or constraint.starts_after is not None:
            return constraint
        is_chat = isinstance(request.prompt, ChatPrompt)
        return constraint.after(_CLOSING) if is_chat and self._is_reasoning(spec.prompt_ids) else constraint

    def _constrained(self, spec: SequenceSpec, compiled: CompiledConstraint) -> SequenceSpec:
        gate = compiled.start()
        gates = [gate] if spec.gate is None else [spec.gate, gate]
        # Whoever wants to see logits, or chooses by those of the token before, needs them in every place.
        needs_choices = spec.logprobs is not None or spec.sampling.mirostat > 0
        most_forced = 0 if needs_choices else self._most_forced
        return replace(spec, gate=join_gates(gates), constraint=gate, most_forced=most_forced)

    def _is_reasoning(self, prompt_ids: Sequence[int]) -> bool:
        tail = b"".join(map(self._tokenizer.token_bytes, prompt_ids[-_TAIL_TOKENS:]))
        return tail.rfind(_OPENING.encode()) > tail.rfind(_CLOSING.encode())
