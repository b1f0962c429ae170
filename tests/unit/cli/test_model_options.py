"""Sizes as people write them on the command line."""

from __future__ import annotations

import pytest

from ferrum.cli.model_options import read_size
from ferrum.core.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("2GiB", 2 * 2**30),
        ("1.5GB", 1_500_000_000),
        ("800 MiB", 800 * 2**20),
        ("64k", 64_000),
        ("12ki", 12 * 1024),
        ("4096", 4096),
        ("7B", 7),
        (" 3gib ", 3 * 2**30),
    ],
)
def test_sizes_have_a_unit_or_are_bytes(text: str, num_bytes: int) -> None:
    assert read_size(text) == num_bytes


def test_no_size_is_none() -> None:
    assert read_size(None) is None


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "2TiB", "1,5GB", "0", "0.2", "1e9", "2GiBs", "nan"])
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidConfig, match="is no size; write 2GiB"):
        read_size(text)
