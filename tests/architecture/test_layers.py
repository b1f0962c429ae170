"""Imports point down: a package imports lower layers or itself, never a sibling of its own layer."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "ferrum"

LAYERS = {
    "core": 0,
    "weights": 1,
    "tokenization": 1,
    "plan": 2,
    "models": 3,
    "runtimes": 3,
    "cache": 3,
    "chat": 3,
    "sampling": 3,
    "completion_boundary": 3,
    "constraints": 3,
    "scheduling": 4,
    "execution": 4,
    "engine": 5,
    "assembly": 6,
    "environment": 1,
    "evidence": 1,
    "llm": 6.5,
    "server": 7,
    "bench": 7,
    "cli": 8,
    "testing": 9,
}


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names = [node.module] if node.module != "ferrum" else [f"ferrum.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("ferrum.")}
    return found


def _rooms() -> list[tuple[str, Path]]:
    rooms = []
    for path in sorted(SOURCE.rglob("*.py")):
        top = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if top not in ("__init__", "__main__"):
            rooms.append((top, path))
    return rooms


def test_every_package_has_a_layer() -> None:
    assert {top for top, _ in _rooms()} <= set(LAYERS)


def test_imports_point_down() -> None:
    wrong = []
    for top, path in _rooms():
        for target in _imports(path) & set(LAYERS):
            if target != top and LAYERS[target] >= LAYERS[top]:
                wrong.append(f"{path.relative_to(SOURCE)} imports ferrum.{target}")
    assert not wrong, "\n".join(wrong)


def test_only_the_environment_file_reads_the_environment() -> None:
    readers = [
        str(path.relative_to(SOURCE))
        for top, path in _rooms()
        if top != "testing" and ("os.environ" in path.read_text() or "os.getenv" in path.read_text())
    ]
    assert readers in ([], ["environment.py"])
