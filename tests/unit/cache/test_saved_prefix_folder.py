"""A folder of saved prefixes: names, its budget, who has to go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ferrum.cache.saved_prefix_folder import SavedPrefixFolder
from ferrum.core.errors import InvalidConfig, InvalidRequest, ResourceExhausted, UnknownPrefix


def _write(folder: SavedPrefixFolder, name: str, num_bytes: int, used_at: float) -> Path:
    folder.make_room(name, num_bytes)
    path = folder.path_for(name)
    path.write_bytes(b"x" * num_bytes)
    os.utime(path, (used_at, used_at))
    return path


def test_the_least_recently_used_go_when_a_new_one_needs_room(tmp_path: Path) -> None:
    folder = SavedPrefixFolder(tmp_path, 100)
    for name, used_at in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        _write(folder, name, 30, used_at)
    assert [file.name for file in folder.files()] == ["b", "c", "a"]
    folder.note_use("b")
    _write(folder, "d", 40, 4.0)
    # Ten bytes were free; c was the one that nobody used for the longest time.
    assert [file.name for file in folder.files()] == ["a", "d", "b"]
    assert sum(file.num_bytes for file in folder.files()) == 100


def test_a_file_that_is_replaced_needs_no_room_beside_itself(tmp_path: Path) -> None:
    folder = SavedPrefixFolder(tmp_path, 100)
    _write(folder, "a", 40, 1.0)
    _write(folder, "b", 60, 2.0)
    _write(folder, "b", 60, 3.0)
    assert [file.name for file in folder.files()] == ["a", "b"]


def test_one_that_is_larger_than_the_folder_is_refused_and_costs_nobody_a_file(tmp_path: Path) -> None:
    folder = SavedPrefixFolder(tmp_path, 100)
    _write(folder, "a", 40, 1.0)
    with pytest.raises(ResourceExhausted, match="101 needed, 100 available; raise --pin-dir-size"):
        folder.make_room("b", 101)
    assert [file.name for file in folder.files()] == ["a"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/b", ".hidden", "-x", "a b", "ä", "a\0", "a\n", "x" * 101]
)
def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = SavedPrefixFolder(tmp_path / "pins", 100)
    for act in (folder.path_for, folder.find, folder.remove, folder.note_use):
        with pytest.raises(InvalidRequest, match="is no name"):
            act(name)


def test_others_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.txt", ".a.ferrum-kv.1.part", "-odd.ferrum-kv"):
        (tmp_path / name).write_bytes(b"x" * 90)
    (tmp_path / "folder.ferrum-kv").mkdir()
    folder = SavedPrefixFolder(tmp_path, 100)
    assert folder.files() == ()
    _write(folder, "a", 100, 1.0)
    _write(folder, "b", 100, 2.0)
    assert len(list(tmp_path.iterdir())) == 5


def test_what_a_killed_process_left_half_written_goes(tmp_path: Path) -> None:
    old, young = tmp_path / ".a.ferrum-kv.1.part", tmp_path / ".a.ferrum-kv.2.part"
    for path in (old, young):
        path.write_bytes(b"x")
    os.utime(old, (1.0, 1.0))
    SavedPrefixFolder(tmp_path, 100)
    assert list(tmp_path.iterdir()) == [young]


def test_an_unknown_name_is_answered_with_those_there_are(tmp_path: Path) -> None:
    folder = SavedPrefixFolder(tmp_path, 100)
    _write(folder, "a", 1, 1.0)
    with pytest.raises(UnknownPrefix, match="no saved prefix named 'b'; there are: a"):
        folder.find("b")


def test_the_folder_is_made_for_its_owner_alone_or_refused(tmp_path: Path) -> None:
    SavedPrefixFolder(tmp_path / "new" / "pins", 100)
    assert (tmp_path / "new" / "pins").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="pin_dir: cannot use"):
        SavedPrefixFolder(tmp_path / "file" / "pins", 100)
    with pytest.raises(InvalidConfig, match="pin_dir: cannot use"):
        SavedPrefixFolder(tmp_path / "file", 100)
