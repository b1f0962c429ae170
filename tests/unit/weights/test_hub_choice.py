"""Which of a repository's files is the model."""

import pytest

from ferrum.core.errors import ModelNotFound
from ferrum.weights.hub_source import choose_checkpoint
from ferrum.weights.model_origin import HubOrigin

MANY = [
    "README.md",
    "M-Q2_K.gguf",
    "M-Q4_K_M.gguf",
    "M-Q4_K_S.gguf",
    "M-Q8_0.gguf",
    "M-f16.gguf",
    "mmproj-M-f16.gguf",
]
SPLIT = ["big-Q8_0-00002-of-00002.gguf", "big-Q8_0-00001-of-00002.gguf"]


@pytest.mark.parametrize(
    ("file", "files", "chosen"),
    [
        (None, MANY, ("M-Q4_K_M.gguf",)),
        (None, ["a/M.Q8_0.gguf", "a/M.Q2_K.gguf"], ("a/M.Q8_0.gguf",)),
        (None, ["only-IQ2_XS.gguf", "README.md", "mmproj-only.gguf"], ("only-IQ2_XS.gguf",)),
        (None, SPLIT, ("big-Q8_0-00001-of-00002.gguf", "big-Q8_0-00002-of-00002.gguf")),
        ("Q8_0", MANY, ("M-Q8_0.gguf",)),
        ("q4_k_s", MANY, ("M-Q4_K_S.gguf",)),
        ("F16", MANY, ("M-f16.gguf",)),
        ("m-q2_k.gguf", MANY, ("M-Q2_K.gguf",)),
        ("Q8_0", [*SPLIT, "big-Q4_0.gguf"], ("big-Q8_0-00001-of-00002.gguf", "big-Q8_0-00002-of-00002.gguf")),
    ],
)
def test_one_checkpoint_is_chosen(file: str | None, files: list[str], chosen: tuple[str, ...]) -> None:
    assert choose_checkpoint(HubOrigin("org/repo", file), files) == chosen


@pytest.mark.parametrize(
    ("file", "files", "told"),
    [
        (None, ["README.md", "model.safetensors", "mmproj-x.gguf"], "no .gguf file"),
        (None, ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"], "a-Q4_K_M.gguf, b-Q4_K_M.gguf"),
        (None, ["a.gguf", "b.gguf"], "a.gguf, b.gguf"),
        ("Q5_0", ["a-Q4_0.gguf", "a-Q8_0.gguf"], "no file fits"),
        ("Q8_0", ["a-Q8_0.gguf", "b-Q8_0.gguf"], "several files fit"),
    ],
)
def test_no_or_several_fitting_files_are_listed(file: str | None, files: list[str], told: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        choose_checkpoint(HubOrigin("org/repo", file), files)
    assert told in str(caught.value)
