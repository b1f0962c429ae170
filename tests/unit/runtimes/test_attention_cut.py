"""A step's attention is cut into tasks that keep every member busy. No result shows it, only the time."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from ferrum import _native

PIECE_KEYS = 128
PASS_QUERIES = 8  # of one pass of the kernel
THREADS = 2
TASKS_PER_MEMBER = 16
CONTEXT = 8192


class Task(NamedTuple):
    first_row: int
    end_row: int
    head: int
    first_piece: int
    end_piece: int

    @property
    def work(self) -> int:
        return (self.end_row - self.first_row) * (self.end_piece - self.first_piece)


class Heads(NamedTuple):
    num_kv: int
    queries_per_row: int
    window: int = 0


THREE = Heads(num_kv=3, queries_per_row=3)


def _cut(heads: Heads, *chunks: tuple[int, int]) -> list[Task]:
    """Tasks of a step of sequences that go on by so many rows from a position each."""
    positions = [start + row for start, rows in chunks for row in range(rows)]
    starts = np.cumsum([0] + [rows for _, rows in chunks])
    tasks = _native.cut_attention(
        np.array(positions, np.int32),
        starts.astype(np.int32),
        heads.num_kv,
        heads.queries_per_row,
        heads.window,
        THREADS,
        CONTEXT,
    )
    return [Task(*task) for task in tasks]


def _largest_share(tasks: list[Task]) -> float:
    return max(task.work for task in tasks) / sum(task.work for task in tasks)


def _passes_over_least(heads: Heads, tasks: list[Task]) -> float:
    """Passes of the kernel over those that its queries fill if none is left half empty."""
    passes = queries = 0
    for task in tasks:
        count = (task.end_row - task.first_row) * heads.queries_per_row
        passes += -(-count // PASS_QUERIES) * (task.end_piece - task.first_piece)
        queries += count * (task.end_piece - task.first_piece)
    return passes * PASS_QUERIES / queries


@pytest.mark.parametrize(
    "heads",
    [THREE, Heads(1, 8), Heads(8, 4), Heads(9, 1), Heads(1, 4, window=512), Heads(2, 40)],
    ids=str,
)
@pytest.mark.parametrize(
    "chunks",
    [[(7000, 1)], [(7000, 13)], [(0, 512)], [(600, 1)] * 8 + [(7000, 13)], [(0, 3), (4000, 70), (130, 1)]],
    ids=str,
)
def test_every_visible_key_of_every_row_is_in_one_task(heads: Heads, chunks: list[tuple[int, int]]) -> None:
    found = Counter(
        (row, task.head, piece)
        for task in _cut(heads, *chunks)
        for row in range(task.first_row, task.end_row)
        for piece in range(task.first_piece, task.end_piece)
    )
    assert max(found.values()) == 1
    positions = [start + row for start, rows in chunks for row in range(rows)]
    for row, position in enumerate(positions):
        first = max(0, position - heads.window + 1) if heads.window else 0
        for head in range(heads.num_kv):
            for piece in range(first // PIECE_KEYS, position // PIECE_KEYS + 1):
                assert (row, head, piece) in found


def test_a_lone_row_at_depth_is_split_by_its_keys() -> None:
    tasks = _cut(THREE, (7000, 1))
    assert len(tasks) >= TASKS_PER_MEMBER * THREADS
    assert _largest_share(tasks) < 0.04


def test_a_lone_row_of_one_head_is_split_as_finely_as_its_keys_allow() -> None:
    assert len(_cut(Heads(num_kv=1, queries_per_row=8), (2047, 1))) == 16


def test_a_short_chunk_at_depth_is_split_by_its_keys() -> None:
    tasks = _cut(THREE, (7000, 13))
    assert len(tasks) >= TASKS_PER_MEMBER * THREADS
    # Six tiles; room for states of 32 rows leaves two of the smallest whole.
    assert _largest_share(tasks) < 0.14
    assert _passes_over_least(THREE, tasks) < 1.05


def test_a_short_chunk_beside_eight_streams_is_split_by_its_keys() -> None:
    assert _largest_share(_cut(THREE, *[(600, 1)] * 8, (7000, 13))) < 0.14


@pytest.mark.parametrize(
    ("heads", "rows_per_tile"),
    [(THREE, 8), (Heads(1, 8), 1), (Heads(8, 4), 2), (Heads(4, 2), 4), (Heads(9, 1), 8), (Heads(1, 12), 2)],
    ids=str,
)
def test_tiles_of_a_short_chunk_are_the_smallest_that_fill_whole_passes(
    heads: Heads, rows_per_tile: int
) -> None:
    tasks = _cut(heads, (7000, 16))
    assert {task.end_row - task.first_row for task in tasks} == {rows_per_tile}
    assert _passes_over_least(heads, tasks) == 1.0


def test_a_long_prefill_is_cut_into_whole_tiles_with_all_their_keys() -> None:
    tasks = _cut(THREE, (0, 512))
    assert {task.end_row - task.first_row for task in tasks} == {8}, "whole passes of eight queries"
    assert {task.first_piece for task in tasks} == {0}
    assert len(tasks) == 3 * 512 // 8


def test_a_long_prefill_reads_its_keys_once_for_as_many_queries_as_a_tile_holds() -> None:
    tasks = _cut(Heads(num_kv=9, queries_per_row=1), (0, 512))
    assert {task.end_row - task.first_row for task in tasks} == {32}


def test_the_short_tasks_of_single_rows_come_last() -> None:
    tasks = _cut(THREE, *[(600, 1)] * 8, (7000, 64))
    rows = [task.end_row - task.first_row for task in tasks]
    assert rows == sorted(rows, reverse=True)
    assert rows[-1] == 1 < rows[0]
