"""What the documents promise a newcomer, held against the tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SOURCES = sorted((ROOT / "src").rglob("*.py"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TEXTS = sorted(
    [
        *DOCUMENTS,
        *SOURCES,
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "scripts").iterdir(),
        ROOT / ".ci" / "run",
        ROOT / "pyproject.toml",
        ROOT / "CMakeLists.txt",
    ]
)
COMMANDS = (
    "python3 -m venv .venv && .venv/bin/pip install . && "
    '.venv/bin/ferrum run smollm2:135m --prompt "Why is the sky blue?"',
    ".venv/bin/pip install -e '.[dev]' && .venv/bin/pytest",
)
HEAVY = ("torch", "transformers")
# The one file that may import them, inside a function that only the executor "transformers" reaches.
TRANSFORMERS_MODEL = ROOT / "src" / "ferrum" / "runtimes" / "transformers_model.py"


def test_the_readme_starts_with_the_two_commands() -> None:
    indented = [line.removeprefix("    ") for line in README.splitlines() if line.startswith("    ")]
    assert indented[: len(COMMANDS)] == list(COMMANDS)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_readme_names_every_architecture_and_weight_type_that_runs() -> None:
    from ferrum.models.architectures import ARCHITECTURES
    from ferrum.weights.tensor_types import TensorType

    rows = {line.split("|")[1].strip(): line for line in README.splitlines() if line.startswith("| ")}
    assert set(re.findall(r"`([^`]+)`", rows["architectures"])) == set(ARCHITECTURES)
    assert {kind.name for kind in TensorType} == set(re.findall(r"\b(?:B?F\d+|Q\d_[01K])\b", rows["weights"]))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_and_file_name_in_a_document_leads_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    missing = [link for link in links if not (document.parent / link).exists()]
    # A name in code style with a folder and an ending: from the checkout, or from the package.
    names = re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|cpp|h|md))`", text)
    missing += [
        name for name in names if not any((ROOT / base / name).exists() for base in ("", "src/ferrum"))
    ]
    assert not missing


def test_the_checklist_names_tests_that_exist() -> None:
    rows = re.findall(r"`(tests/\S+\.py)` (test_\w+)", (ROOT / "docs" / "checklist.md").read_text("utf-8"))
    assert rows
    missing = [name for file, name in rows if f"def {name}(" not in (ROOT / file).read_text("utf-8")]
    assert not missing


def test_the_architecture_document_lists_the_layers_of_the_test() -> None:
    from architecture.test_layers import LAYERS

    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = dict.fromkeys(LAYERS, -1.0)
    for layer, packages in re.findall(r"^\| ([\d.]+) \| (.+?) \|", text, re.MULTILINE):
        table |= dict.fromkeys(re.findall(r"`(\w+)`", packages), float(layer))
    assert table == LAYERS


def test_nothing_in_the_package_imports_torch_or_transformers() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in SOURCES
        for name in _imported_names(path)
        if name.split(".")[0] in HEAVY and path != TRANSFORMERS_MODEL
    ]
    assert not wrong


def test_importing_every_module_imports_neither_torch_nor_transformers() -> None:
    modules = [
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for path in SOURCES
        if path.name not in ("__init__.py", "__main__.py")
    ]
    code = f"import sys\nfor heavy in {HEAVY}: sys.modules[heavy] = None\n" + "".join(
        f"import {module}\n" for module in modules
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_production_never_imports_the_fakes() -> None:
    testing = ROOT / "src" / "ferrum" / "testing"
    users = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if testing not in path.parents
        and any(name.startswith("ferrum.testing") for name in _imported_names(path))
    ]
    assert not users


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["-c", "import ferrum"], ("numpy", "ferrum._native", "tokenizers", "starlette", *HEAVY)),
        (
            ["-m", "ferrum", "run", "--help"],
            ("numpy", "ferrum._native", "tokenizers", "starlette", *HEAVY),
        ),
        (["-m", "ferrum", "--help"], ("ferrum._native", "tokenizers", "starlette", *HEAVY)),
    ],
    ids=["import ferrum", "ferrum run --help", "ferrum --help"],
)
def test_the_start_is_fast(arguments: list[str], unwanted: tuple[str, ...]) -> None:
    """What is not needed is not imported. The interpreter lists every import on stderr."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    imported = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
    assert "ferrum" in imported or "ferrum.cli" in imported
    assert not imported & set(unwanted)


def test_no_text_names_a_machine_or_an_index() -> None:
    pattern = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/|/tmp/\w|files\.pythonhosted|pypi\.org")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in TEXTS
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def _imported_names(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names
