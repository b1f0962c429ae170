"""Options of pins: what is refused before a model is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrum.cli.pin_options import PinSettings, pin_settings
from ferrum.core.errors import InvalidConfig
from ferrum.server.admin_key import AdminKey

KEY = "a-key-that-is-long"


def _settings(**changes: object) -> PinSettings:
    options: dict[str, object] = {
        "admin_key_file": None,
        "admin_key": None,
        "pin_dir": None,
        "pin_dir_size": None,
        "restores": False,
        "has_prefix_cache": True,
        **changes,
    }
    return pin_settings(**options)


def test_by_default_there_is_no_key_and_no_folder() -> None:
    assert _settings() == PinSettings(None, None, 4 * 2**30, False)


def test_a_file_wins_over_the_environment_and_the_key_is_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    settings = _settings(admin_key_file=path, admin_key="another", pin_dir=tmp_path, pin_dir_size="1MiB")
    assert settings == PinSettings(KEY, tmp_path, 2**20, False)
    assert KEY not in repr(settings)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"restores": True}, "--restore-pins: from where"),
        ({"pin_dir": Path("x")}, "--pin-dir: nobody could save into it"),
        (
            {"pin_dir": Path("x"), "restores": True, "has_prefix_cache": False},
            "--pin-dir: prompts are pinned",
        ),
        ({"pin_dir_size": "1GiB"}, "--pin-dir-size: of which folder"),
        (
            {"pin_dir": Path("x"), "restores": True, "pin_dir_size": "1TiB"},
            "--pin-dir-size: '1TiB' is no size",
        ),
        ({"admin_key_file": Path("/nowhere/key")}, "--admin-key-file: cannot read"),
    ],
)
def test_options_without_effect_are_refused_by_name(changes: dict[str, object], expected: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        _settings(**changes)
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize(
    "key", ["", "short", "a key with blanks in it", "schlüssel-mit-umlaut", "a-key\nwith-a-line"]
)
def test_a_key_that_cannot_be_one_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(InvalidConfig, match="admin key") as caught:
        AdminKey(key)
    assert not key or key not in str(caught.value)
