"""The folder of fetched models: all or nothing, for several processes and after any accident."""

import errno
import threading
from pathlib import Path

import pytest

from ferrum.core.errors import DownloadFailed, ModelNotFound
from ferrum.weights.model_store import FetchedModel, ModelState, ModelStore

NAME = "smollm2:135m"


def silent() -> None:
    pass


def bring(content: bytes = b"weights"):
    def fetch(folder: Path) -> FetchedModel:
        (folder / "model.gguf").write_bytes(content)
        return FetchedModel((folder / "model.gguf",), "test")

    return fetch


def must_not_fetch(folder: Path) -> FetchedModel:
    raise AssertionError("fetched again")


def visible(store: ModelStore) -> list[str]:
    """Every file under the store except its locks."""
    return [path.name for path in store.directory.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_an_added_model_is_resolved_listed_and_not_fetched_again(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models")
    assert store.resolve(NAME) is None
    assert store.list() == ()
    path = store.add(NAME, bring(), silent)
    assert path.read_bytes() == b"weights"
    assert ModelStore(tmp_path / "models").resolve(NAME) == path
    assert store.add(NAME, must_not_fetch, silent) == path
    (model,) = store.list()
    assert (model.name, model.num_bytes, model.format, model.state) == (NAME, 7, "gguf", ModelState.READY)
    assert sorted(visible(store)) == ["manifest.json", "model.gguf"]


def test_names_that_differ_only_in_odd_characters_are_different_models(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    names = ["hf:a/b", "hf:a-b", "hf:a b", "hf:a/B", "../..", "/etc", ".", "x" * 300]
    for name in names:
        store.add(name, bring(name.encode()), silent)
    for name in names:
        path = store.resolve(name)
        assert path is not None
        assert path.read_bytes() == name.encode()
        assert path.parent.parent == tmp_path
    assert {model.name for model in store.list()} == set(names)


@pytest.mark.parametrize("error", [KeyboardInterrupt, DownloadFailed("x", "y"), ValueError])
def test_a_fetch_that_fails_leaves_nothing(
    tmp_path: Path, error: BaseException | type[BaseException]
) -> None:
    store = ModelStore(tmp_path)

    def fetch(folder: Path) -> FetchedModel:
        (folder / "model.gguf").write_bytes(b"half")
        raise error

    with pytest.raises(error if isinstance(error, type) else type(error)):
        store.add(NAME, fetch, silent)
    assert store.list() == ()
    assert visible(store) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_one_clear_line_and_leaves_nothing(tmp_path: Path, number: int) -> None:
    store = ModelStore(tmp_path)

    def fetch(folder: Path) -> FetchedModel:
        (folder / "model.gguf").write_bytes(b"half")
        raise OSError(number, "full")

    with pytest.raises(DownloadFailed, match=r"no space left in .*FERRUM_HOME"):
        store.add(NAME, fetch, silent)
    assert visible(store) == []


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadFailed, match="cannot write to"):
        ModelStore(tmp_path / "file").add(NAME, bring(), silent)


def leave_killed_fetch(store: ModelStore) -> Path:
    """What a process leaves that is killed in the middle of a fetch."""
    store.add(NAME, bring(), silent)
    (stored,) = (path for path in store.directory.iterdir() if not path.name.startswith("."))
    incoming = store.directory / ".incoming" / stored.name
    incoming.mkdir(parents=True)
    (incoming / "name").write_text(NAME)
    stored.rename(incoming / "files-killed")
    return incoming


def test_what_a_killed_fetch_left_is_incomplete_and_the_next_fetch_clears_it(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    incoming = leave_killed_fetch(store)
    assert store.resolve(NAME) is None
    (model,) = store.list()
    assert (model.name, model.state) == (NAME, ModelState.INCOMPLETE)
    store.add(NAME, bring(b"whole"), silent)
    assert not incoming.exists()
    (model,) = store.list()
    assert (model.num_bytes, model.state) == (5, ModelState.READY)


def test_what_a_killed_fetch_left_can_be_removed(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    leave_killed_fetch(store)
    store.remove(NAME)
    assert store.list() == ()
    assert visible(store) == []


@pytest.mark.parametrize("damage", ["truncated", "deleted"])
def test_a_damaged_model_is_incomplete_and_fetched_again(tmp_path: Path, damage: str) -> None:
    store = ModelStore(tmp_path)
    path = store.add(NAME, bring(), silent)
    if damage == "truncated":
        path.write_bytes(b"wei")
    else:
        path.unlink()
    assert store.resolve(NAME) is None
    assert [model.state for model in store.list()] == [ModelState.INCOMPLETE]
    assert store.add(NAME, bring(b"anew"), silent).read_bytes() == b"anew"


@pytest.mark.parametrize("manifest", ["", "{", "[]", "null", '{"name": 1}', '{"files": [{}]}'])
def test_a_model_whose_manifest_is_broken_is_incomplete_and_can_be_removed(
    tmp_path: Path, manifest: str
) -> None:
    store = ModelStore(tmp_path)
    path = store.add(NAME, bring(), silent)
    (path.parent / "manifest.json").write_text(manifest)
    assert store.resolve(NAME) is None
    (model,) = store.list()
    assert model.state is ModelState.INCOMPLETE
    store.remove(model.name)
    assert store.list() == ()


def test_removing_frees_the_bytes_and_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    store.add(NAME, bring(), silent)
    store.add("gemma3:270m", bring(), silent)
    assert store.remove(NAME).num_bytes == 7
    with pytest.raises(ModelNotFound, match=r"gemma3:270m"):
        store.remove(NAME)


def test_files_of_another_cache_are_used_in_place_and_survive_removal(tmp_path: Path) -> None:
    shared = tmp_path / "hub" / "model.gguf"
    shared.parent.mkdir()
    shared.write_bytes(b"weights")
    store = ModelStore(tmp_path / "models")
    assert store.add("hf:a/b", lambda _: FetchedModel((shared,), "hf:a/b"), silent) == shared
    assert store.list()[0].num_bytes == 7
    assert store.remove("hf:a/b").kept == (shared,)
    assert shared.exists()


def test_two_that_want_one_model_at_once_fetch_it_once(tmp_path: Path) -> None:
    started, go_on, waited = threading.Event(), threading.Event(), threading.Event()
    paths: list[Path] = []

    def slow(folder: Path) -> FetchedModel:
        started.set()
        assert go_on.wait(10)
        return bring()(folder)

    first = threading.Thread(target=lambda: paths.append(ModelStore(tmp_path).add(NAME, slow, silent)))
    second = threading.Thread(
        target=lambda: paths.append(ModelStore(tmp_path).add(NAME, must_not_fetch, waited.set))
    )
    first.start()
    assert started.wait(10)
    second.start()
    assert waited.wait(10)
    assert ModelStore(tmp_path).list()[0].state is ModelState.INCOMPLETE
    go_on.set()
    first.join(10)
    second.join(10)
    assert len(paths) == 2
    assert paths[0] == paths[1]
