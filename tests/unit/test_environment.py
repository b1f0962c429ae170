"""What environment variables mean."""

from pathlib import Path

import pytest

from ferrum.core.errors import InvalidConfig
from ferrum.environment import cache_directory, child_environment, model_directory, read_environment


def test_ferrum_home_moves_models_and_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FERRUM_HOME", str(tmp_path))
    assert model_directory().is_relative_to(tmp_path)
    assert cache_directory().is_relative_to(tmp_path)
    assert model_directory() != cache_directory()


@pytest.mark.parametrize("value", [None, ""])
def test_the_home_folder_is_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if value is None:
        monkeypatch.delenv("FERRUM_HOME", raising=False)
    else:
        monkeypatch.setenv("FERRUM_HOME", value)
    assert read_environment().home == tmp_path / ".cache" / "ferrum"


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FERRUM_HOME", "~/models")
    assert read_environment().home == tmp_path / "models"


def test_a_home_folder_that_nobody_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRUM_HOME", "~no-such-person/models")
    with pytest.raises(InvalidConfig, match="FERRUM_HOME"):
        read_environment()


def test_a_child_process_has_our_variables_and_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "1")
    monkeypatch.setenv("POOL", "8")
    variables = child_environment({"POOL": "2"})
    assert (variables["OURS"], variables["POOL"]) == ("1", "2")


@pytest.mark.parametrize(("value", "expected"), [("", None), ("a secret", "a secret")])
def test_an_empty_admin_key_is_none_and_a_key_is_never_shown(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: str | None
) -> None:
    monkeypatch.setenv("FERRUM_ADMIN_KEY", value)
    environment = read_environment()
    assert environment.admin_key == expected
    assert "a secret" not in repr(environment)
