"""What OpenAI's ``response_format`` and vLLM's ``structured_outputs`` say of the answer, as a Constraint."""

from __future__ import annotations

from typing import Any

from ferrum.core.constraint import Constraint, JsonSpacing
from ferrum.core.errors import InvalidRequest
from ferrum.server.wire_schemas import GenerationBody

RESPONSE_FORMAT, STRUCTURED_OUTPUTS = "response_format", "structured_outputs"

_KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_OTHERS = ("disable_any_whitespace", "starts_after")
_REFUSED = {
    "disable_additional_properties": "is not supported; write additionalProperties false into the schema",
    "whitespace_pattern": "is not supported: blanks are bounded; disable_any_whitespace leaves them out",
}


def constraint_of(body: GenerationBody) -> Constraint | None:
    """The constraint of either field. Raises InvalidRequest naming the field for what it does not take."""
    if body.structured_outputs is None:
        return None if body.response_format is None else _response_format(body.response_format)
    if body.response_format not in (None, {"type": "text"}):
        raise InvalidRequest(f"cannot be used together with {RESPONSE_FORMAT}", param=STRUCTURED_OUTPUTS)
    return _structured_outputs(body.structured_outputs)


def constraint_wire_name(body: GenerationBody) -> str:
    """The field that the engine's word "constraint" means to the client."""
    return RESPONSE_FORMAT if body.structured_outputs is None else STRUCTURED_OUTPUTS


def _response_format(value: dict[str, Any]) -> Constraint | None:
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        # llama.cpp's clients put a schema beside it.
        schema = value.get("schema")
        return Constraint.json_object() if schema is None else Constraint.json_schema(schema)
    if kind == "json_schema":
        return _json_schema(value.get("json_schema"))
    if kind == "structural_tag":
        return Constraint.structural_tag(value)
    raise InvalidRequest(
        f"must be text, json_object, json_schema or structural_tag, not {kind!r}",
        param=f"{RESPONSE_FORMAT}.type",
    )


def _json_schema(value: Any) -> Constraint:
    path = f"{RESPONSE_FORMAT}.json_schema"
    if not isinstance(value, dict):
        raise InvalidRequest("is required and must be an object with a schema", param=path)
    schema, strict = value.get("schema"), value.get("strict")
    if schema is None:
        raise InvalidRequest("is required", param=f"{path}.schema")
    if strict is not None and not isinstance(strict, bool):
        raise InvalidRequest(f"must be true or false, not {strict!r}", param=f"{path}.strict")
    if strict:
        from ferrum.constraints.strict_schema import with_all_required

        schema = with_all_required(schema)
    return Constraint.json_schema(schema)


def _structured_outputs(value: dict[str, Any]) -> Constraint:
    for name in value:
        if name in _REFUSED and value[name] not in (None, False):
            raise InvalidRequest(_REFUSED[name], param=f"{STRUCTURED_OUTPUTS}.{name}")
        if name not in (*_KINDS, *_OTHERS, *_REFUSED):
            known = ", ".join((*_KINDS, *_OTHERS))
            raise InvalidRequest(f"is unknown; there are: {known}", param=f"{STRUCTURED_OUTPUTS}.{name}")
    asked = [name for name in _KINDS if value.get(name) not in (None, False)]
    if len(asked) != 1:
        raise InvalidRequest(
            f"must have exactly one of {', '.join(_KINDS)}, not {' and '.join(asked) or 'none'}",
            param=STRUCTURED_OUTPUTS,
        )
    compact = value.get("disable_any_whitespace")
    if compact is not None and not isinstance(compact, bool):
        raise InvalidRequest(
            f"must be true or false, not {compact!r}", param=f"{STRUCTURED_OUTPUTS}.disable_any_whitespace"
        )
    spacing = JsonSpacing.COMPACT if compact else JsonSpacing.READABLE
    constraint = _of_kind(asked[0], value[asked[0]], spacing)
    delimiter = value.get("starts_after")
    return constraint if delimiter is None else constraint.after(delimiter)


def _of_kind(name: str, value: Any, spacing: JsonSpacing) -> Constraint:
    match name:
        case "json":
            return Constraint.json_schema(value, spacing)
        case "json_object" if value is True:
            return Constraint.json_object(spacing)
        case "choice":
            return Constraint.choice(value)
        case "regex" if isinstance(value, str):
            return Constraint.regex(value)
        case "grammar" if isinstance(value, str):
            return Constraint.grammar(value)
        case "structural_tag":
            return Constraint.structural_tag(value)
    wanted = "true" if name == "json_object" else "a text"
    raise InvalidRequest(f"must be {wanted}, not {value!r:.60}", param=f"{STRUCTURED_OUTPUTS}.{name}")
