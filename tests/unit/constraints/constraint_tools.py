"""A compiler over bytes, and what its constraints say of texts."""

from __future__ import annotations

from ferrum.constraints.constraint_compiler import ConstraintCompiler
from ferrum.constraints.constraint_gate import ConstraintGate
from ferrum.core.constraint import Constraint
from ferrum.core.token_gate import is_allowed
from ferrum.testing.byte_tokenizer import ByteTokenizer


def byte_compiler() -> ConstraintCompiler:
    return ConstraintCompiler(ByteTokenizer(), ByteTokenizer().vocab_size)


def read(gate: ConstraintGate, text: str) -> ConstraintGate | None:
    """The place behind ``text``; None when it is not allowed there."""
    for byte in text.encode():
        if gate.is_complete or not is_allowed(gate.mask, byte):
            return None
        gate = gate.after(byte)
    return gate


def is_whole(compiler: ConstraintCompiler, constraint: Constraint, text: str) -> bool:
    """Whether ``text`` is an answer that may end, by the grammar and by the check."""
    gate = read(compiler.compile(constraint).start(), text)
    return gate is not None and gate.may_end and gate.look().result(10) is None
