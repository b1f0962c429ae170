"""``ferrum bench perplexity``: what it refuses; figures are in the tests of the real models."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ferrum.cli.bench import app
from ferrum.core.errors import InvalidConfig

pytest.importorskip("ferrum._native")


@pytest.mark.parametrize(("content", "words"), [(None, "cannot read"), (b"\xff\xfe", "is not UTF-8 text")])
def test_a_text_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    text, model = tmp_path / "text.txt", tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    if content is not None:
        text.write_bytes(content)
    result = CliRunner().invoke(app, ["perplexity", str(model), "--text", str(text)])
    assert isinstance(result.exception, InvalidConfig)
    assert words in str(result.exception)
