from __future__ import annotations

import pytest

from ferrum.bench.timed_runtime import RuntimeCall, seconds_between_decodes


def call(began_at: float, ended_at: float, num_sequences: int, num_tokens: int) -> RuntimeCall:
    return RuntimeCall(began_at, ended_at, num_sequences, num_tokens)


def test_pauses_count_between_neighbouring_decodes_of_all_sequences_only() -> None:
    calls = [
        call(0.0, 1.0, 2, 40),  # a prefill: what follows has its own work to do
        call(1.9, 2.0, 2, 2),
        call(2.1, 3.0, 2, 2),
        call(3.3, 4.0, 2, 2),
        call(4.2, 5.0, 2, 2),
        call(6.0, 7.0, 1, 1),  # one of them has ended
    ]
    assert seconds_between_decodes(calls, 2) == pytest.approx(0.2)


def test_without_two_such_steps_there_is_no_figure() -> None:
    assert seconds_between_decodes([], 1) is None
    assert seconds_between_decodes([call(0.0, 1.0, 1, 1), call(1.1, 2.0, 1, 9)], 1) is None
