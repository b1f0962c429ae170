"""From a JSON Schema to one of fewer keywords, each of which the grammar engine enforces exactly.

What cannot be enforced is refused with its keyword and place, never dropped. A value that the rewritten
schema allows is valid by the original one; the rewritten one may allow less (a bounded number of digits, a
property order). Sources: JSON Schema draft 2020-12, "Core" and "Validation".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from ferrum.constraints.regular_expressions import UnsupportedRegex, search_regex
from ferrum.constraints.schema_keywords import ANNOTATIONS, DIALECTS, REFUSALS
from ferrum.constraints.string_formats import FORMATS
from ferrum.core.errors import InvalidConstraint

Schema = dict[str, Any]

MAX_DEPTH = 256
MAX_COUNT = 1_000_000
"""Longer strings and arrays are cut short by the context anyhow, so larger upper bounds mean this one."""

# The engine reads numbers as float64.
_LARGEST_EXACT = 2**53
_STEP = Decimal("1e-9")
_INTEGER_FORMATS = MappingProxyType(
    {"int32": (-(2**31), 2**31 - 1), "int64": (-_LARGEST_EXACT, _LARGEST_EXACT)}
)
_REAL_FORMATS = ("float", "double")
_SHORT_ESCAPES = "\b\f\n\r\t"
_TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")


class SchemaRewriter:
    """Rewrites one schema. Mutates the definitions it collects; used once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._names: dict[str, str] = {}  # pointer of what was referred to, to its name among the definitions
        self._choices: dict[int, str] = {}  # id of a rewritten oneOf, to the pointer of its schema
        self._waiting: list[str] = []  # those pointers that are not rewritten yet
        # (keyword, its value, the schema around it, that schema's pointer) to what is written instead.
        self._writers: dict[str, Callable[[str, Any, Schema, str], Schema]] = {
            "$ref": self._reference,
            "type": self._type,
            "enum": self._enum,
            "const": self._const,
            "properties": self._schemas_by_name,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._one_schema,
            "required": self._required,
            "minProperties": self._min_properties,
            "maxProperties": self._max_count,
            "items": self._one_schema,
            "prefixItems": self._schemas,
            "minItems": self._min_count,
            "maxItems": self._max_count,
            "uniqueItems": self._unique_items,
            "anyOf": self._schemas,
            "oneOf": self._one_of,
            "allOf": self._schemas,
            "pattern": self._pattern,
            "format": self._format,
            "minLength": self._min_count,
            "maxLength": self._max_count,
            "minimum": self._bound,
            "maximum": self._bound,
            "exclusiveMinimum": self._exclusive_bound,
            "exclusiveMaximum": self._exclusive_bound,
            "multipleOf": self._multiple,
        }

    def rewrite(self) -> Schema:
        """The whole schema, with "$defs" of what it refers to. Raises InvalidConstraint."""
        schema = self._schema(self._root, "")
        definitions: dict[str, Schema] = {}
        while self._waiting:
            target = self._waiting.pop()
            definitions[self._names[target]] = self._schema(_resolve(self._root, target), target)
        return {**schema, "$defs": definitions} if definitions else schema

    def place_of(self, one_of: list[Schema]) -> str:
        """The pointer of the schema with this rewritten oneOf."""
        return self._choices[id(one_of)]

    def _schema(self, schema: Any, pointer: str) -> Schema:
        if schema is True:
            return {}
        if schema is False:
            return {"enum": []}
        if not isinstance(schema, dict):
            raise InvalidConstraint(
                f"must be a schema (an object, true or false), not {_short(schema)}", None, pointer
            )
        if pointer.count("/") > MAX_DEPTH:
            raise InvalidConstraint(f"is more than {MAX_DEPTH} steps deep", None, pointer)
        _check_identity(schema, pointer)
        rewritten: Schema = {}
        more: list[Schema] = []
        for keyword, value in schema.items():
            if keyword in ANNOTATIONS or keyword.startswith("x-"):
                continue
            if keyword in REFUSALS:
                raise InvalidConstraint(REFUSALS[keyword], keyword, pointer)
            if keyword not in self._writers:
                raise InvalidConstraint(
                    "is no keyword that can be enforced; remove it, or begin its name with x- if it only "
                    "describes",
                    keyword,
                    pointer,
                )
            part = self._writers[keyword](keyword, value, schema, pointer)
            if rewritten.keys() & part.keys() or "$ref" in part:
                more.append(part)
            else:
                rewritten.update(part)
        if more:
            rewritten["allOf"] = [*rewritten.get("allOf", []), *more]
        return rewritten

    def _reference(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
            raise InvalidConstraint(
                f"must point into this schema (#/$defs/...), not to {_short(value)}", keyword, pointer
            )
        target = unquote(value[1:])
        if target not in self._names:
            try:
                _resolve(self._root, target)
            except LookupError:
                raise InvalidConstraint(
                    f"points to {_short(value)}, which is not there", keyword, pointer
                ) from None
            self._names[target] = f"d{len(self._names)}"
            self._waiting.append(target)
        return {"$ref": f"#/$defs/{self._names[target]}"}

    def _type(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        names = value if isinstance(value, list) else [value]
        for name in names:
            if name not in _TYPES:
                raise InvalidConstraint(f"{_short(name)} is no type of JSON Schema", keyword, pointer)
        if not names:
            raise InvalidConstraint("must name at least one type", keyword, pointer)
        return {keyword: value}

    def _enum(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        if not isinstance(value, list) or not value:
            raise InvalidConstraint("must be a list of at least one value", keyword, pointer)
        for each in value:
            _check_literal(each, keyword, pointer)
        return {keyword: value}

    def _const(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        _check_literal(value, keyword, pointer)
        return {keyword: value}

    def _schemas_by_name(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        _require_object(value, keyword, pointer)
        for name in value:
            _check_text(name, keyword, pointer)
        return {keyword: {name: self._below(each, pointer, keyword, name) for name, each in value.items()}}

    def _pattern_properties(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        _require_object(value, keyword, pointer)
        return {
            keyword: {
                _anchored(pattern, keyword, pointer): self._below(each, pointer, keyword, pattern)
                for pattern, each in value.items()
            }
        }

    def _one_schema(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        if isinstance(value, list):
            raise InvalidConstraint("must be one schema; write prefixItems for several", keyword, pointer)
        return {keyword: self._below(value, pointer, keyword)}

    def _schemas(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        if not isinstance(value, list) or not value:
            raise InvalidConstraint("must be a list of at least one schema", keyword, pointer)
        return {keyword: [self._below(each, pointer, keyword, str(i)) for i, each in enumerate(value)]}

    def _one_of(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        rewritten = self._schemas(keyword, value, schema, pointer)
        self._choices[id(rewritten[keyword])] = pointer
        return rewritten

    def _below(self, schema: Any, pointer: str, *steps: str) -> Schema:
        below = pointer + "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)
        return self._schema(schema, below)

    def _required(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        if not isinstance(value, list):
            raise InvalidConstraint("must be a list of property names", keyword, pointer)
        for name in value:
            _check_text(name, keyword, pointer)
        return {keyword: list(dict.fromkeys(value))}

    def _min_properties(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        count = _count(value, keyword, pointer)
        required = schema.get("required", [])
        if isinstance(required, list) and len(set(map(str, required))) >= count:
            return {}
        if count > 1:
            # The engine does not see that a free property comes a second time.
            raise InvalidConstraint(
                "above 1 cannot be enforced beyond the required properties; name them in required",
                keyword,
                pointer,
            )
        return {keyword: count}

    def _min_count(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        count = _count(value, keyword, pointer)
        if count > MAX_COUNT:
            raise InvalidConstraint(f"must be at most {MAX_COUNT}, not {count}", keyword, pointer)
        return {keyword: count}

    def _max_count(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        return {keyword: min(_count(value, keyword, pointer), MAX_COUNT)}

    def _unique_items(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        most = schema.get("maxItems")
        if value is False or (value is True and isinstance(most, int) and most <= 1):
            return {}
        raise InvalidConstraint(
            "cannot be enforced while a value is written; list the items in prefixItems instead",
            keyword,
            pointer,
        )

    def _pattern(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        return {keyword: _anchored(value, keyword, pointer)}

    def _format(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        if value in FORMATS:
            return {"pattern": f"^(?:{FORMATS[value]})$"}
        types = schema.get("type", _TYPES)
        is_text_free = "string" not in ([types] if isinstance(types, str) else types)
        if is_text_free and value in _INTEGER_FORMATS:
            least, most = _INTEGER_FORMATS[value]
            return {"allOf": [{"minimum": least, "maximum": most}]}
        if is_text_free and value in _REAL_FORMATS:
            return {}
        raise InvalidConstraint(
            f"{_short(value)} cannot be enforced; there are: {', '.join(sorted(FORMATS))}", keyword, pointer
        )

    def _bound(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        return {keyword: _number(value, keyword, pointer)}

    def _exclusive_bound(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        """The nearest bound that is included, so that no text rounds to the excluded number."""
        number = _number(value, keyword, pointer)
        is_below = keyword == "exclusiveMaximum"
        step = -_STEP if is_below else _STEP
        near = float(Decimal(number) + step)
        if near == number:
            near = math.nextafter(number, -math.inf if is_below else math.inf)
        return {"maximum" if is_below else "minimum": near}

    def _multiple(self, keyword: str, value: Any, schema: Schema, pointer: str) -> Schema:
        number = _number(value, keyword, pointer)
        if number <= 0:
            raise InvalidConstraint(f"must be above 0, not {number}", keyword, pointer)
        return {keyword: number}


def _check_identity(schema: Mapping[str, Any], pointer: str) -> None:
    dialect = schema.get("$schema")
    if dialect is not None and str(dialect).rstrip("#") not in DIALECTS:
        raise InvalidConstraint(f"{_short(dialect)} is not known; leave it out", "$schema", pointer)
    if pointer and "$id" in schema:
        raise InvalidConstraint("is only supported at the top", "$id", pointer)


def _resolve(root: Any, target: str) -> Any:
    """What the JSON pointer ``target`` names (RFC 6901). Raises LookupError when it names nothing."""
    found = root
    for step in target.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal():
            found = found[int(key)]
        elif isinstance(found, dict):
            found = found[key]
        else:
            raise LookupError(target)
    return found


def _anchored(pattern: Any, keyword: str, pointer: str) -> str:
    """The expression for the whole text, written anew."""
    _check_text(pattern, keyword, pointer)
    try:
        return f"^{search_regex(pattern)}$"
    except UnsupportedRegex as error:
        raise InvalidConstraint(f"{_short(pattern)}: {error}", keyword, pointer) from None


def _check_literal(value: Any, keyword: str, pointer: str) -> None:
    """Refuses what the engine would write otherwise than it is."""
    if isinstance(value, str):
        _check_text(value, keyword, pointer)
    elif isinstance(value, dict):
        for name, each in value.items():
            _check_text(name, keyword, pointer)
            _check_literal(each, keyword, pointer)
    elif isinstance(value, list):
        for each in value:
            _check_literal(each, keyword, pointer)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _number(value, keyword, pointer)


def _check_text(text: Any, keyword: str, pointer: str) -> None:
    if not isinstance(text, str):
        raise InvalidConstraint(f"must hold texts, not {_short(text)}", keyword, pointer)
    for character in text:
        if "\ud800" <= character <= "\udfff":
            raise InvalidConstraint(f"{_short(text)} has half of a surrogate pair", keyword, pointer)
        if character < " " and character not in _SHORT_ESCAPES:
            raise InvalidConstraint(
                f"{_short(text)} has the control character U+{ord(character):04X}, which is not supported",
                keyword,
                pointer,
            )


def _number(value: Any, keyword: str, pointer: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidConstraint(f"must be a number, not {_short(value)}", keyword, pointer)
    if abs(value) > _LARGEST_EXACT:
        raise InvalidConstraint(
            f"{value} is beyond ±2^53, where numbers are no longer exact", keyword, pointer
        )
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _count(value: Any, keyword: str, pointer: str) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if not (is_count or (isinstance(value, float) and value.is_integer())) or value < 0:
        raise InvalidConstraint(f"must be an integer of at least 0, not {_short(value)}", keyword, pointer)
    return int(value)


def _require_object(value: Any, keyword: str, pointer: str) -> None:
    if not isinstance(value, dict):
        raise InvalidConstraint(f"must be an object, not {_short(value)}", keyword, pointer)


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
