"""Answers of a constraint, drawn at random from its masks, without a model."""

from __future__ import annotations

import random

import numpy as np

from ferrum.constraints.constraint_gate import ConstraintGate

_CLOSING = frozenset(b'"}],')


def allowed_ids(gate: ConstraintGate) -> list[int]:
    bits = np.unpackbits(gate.mask.astype("<u4").view(np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()


def random_answer(
    gate: ConstraintGate, seed: int, end_id: int, most: int = 400
) -> tuple[list[int], ConstraintGate]:
    """Tokens up to the end, or ``most`` of them, and the place behind the last."""
    draw = random.Random(seed)
    token_ids: list[int] = []
    while not gate.is_complete and len(token_ids) < most:
        ids = allowed_ids(gate)
        # Texts without an end have to come to one.
        token_id = end_id if end_id in ids and draw.random() < 0.3 else _narrow(draw, ids)
        gate = gate.after(token_id)
        assert gate.error is None, gate.error
        if token_id == end_id:
            break
        token_ids.append(token_id)
    return token_ids, gate


def _narrow(draw: random.Random, ids: list[int]) -> int:
    """Any of them, but quotes and brackets that close more often than their share."""
    closing = [each for each in ids if each in _CLOSING]
    return draw.choice(closing) if closing and draw.random() < 0.3 else draw.choice(ids)
