"""Token ids recorded by scripts/regenerate-goldens; a change in them changes every prompt."""

import json
from pathlib import Path

import pytest

from ferrum.tokenization.gguf_tokenizer import tokenizer_from_gguf
from ferrum.weights.gguf_reader import read_gguf

GOLDENS = Path(__file__).parents[2] / "golden" / "tokens"

pytestmark = pytest.mark.models


@pytest.mark.parametrize(("fixture", "name"), [("smollm2_path", "smollm2"), ("gemma3_path", "gemma3")])
def test_ids_are_those_recorded(fixture: str, name: str, request: pytest.FixtureRequest) -> None:
    tokenizer = tokenizer_from_gguf(read_gguf(request.getfixturevalue(fixture)).metadata, None)
    recorded = json.loads((GOLDENS / f"{name}.json").read_text())
    assert len(recorded) > 150
    assert {text: tokenizer.encode(text) for text in recorded} == recorded
