from __future__ import annotations

import pytest

from ferrum.core.philox import Words4, philox4x32, uniform

_ONES = 0xFFFFFFFF


# Known answers of the authors' own library (Random123, kat_vectors, philox4x32 10).
@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((_ONES,) * 4, (_ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_published_answers_come_out(counter: Words4, key: tuple[int, int], answer: Words4) -> None:
    assert philox4x32(counter, key) == answer


def test_a_uniform_number_is_made_of_the_first_two_words() -> None:
    expected = ((0x6627E8D5 >> 5) * 2**26 + (0xE169C58D >> 6)) / 2**53
    assert uniform(seed=0, position=0) == expected


def test_both_halves_of_the_seed_and_every_counter_word_matter() -> None:
    numbers = {
        uniform(0, 0),
        uniform(1, 0),
        uniform(1 << 32, 0),
        uniform(0, 1),
        uniform(0, 0, sample_index=1),
        uniform(0, 0, purpose=1),
        uniform(0, 0, attempt=1),
    }
    assert len(numbers) == 7


def test_many_positions_fill_the_unit_interval_evenly() -> None:
    counts = [0] * 10
    for position in range(5000):
        counts[int(uniform(42, position) * 10)] += 1
    # Standard deviation of a count: sqrt(5000 * 0.1 * 0.9) = 21.
    assert all(abs(count - 500) < 6 * 21 for count in counts)
