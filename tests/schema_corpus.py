"""Generated JSON Schemas, regexes and grammars, made of what constraints promise to enforce."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

NAMES = [
    "name",
    "id",
    "größe",
    "名前",
    "e-mail",
    "a b",
    'quo"te',
    "back\\slash",
    "tab\there",
    "😀",
    "x/y",
    "~z",
]
PATTERNS = [
    "^[a-z]{2,6}$",
    "^(red|green|blue)$",
    r"^\d{3}-\d{2}$",
    "ab+c",
    r"^[A-Z][a-z]+ [A-Z][a-z]+$",
    r"^\S+$",
]
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4", "uri"]


class SchemaWriter:
    """Writes schemas from a seed; the same seed gives the same schema."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def schema(self) -> dict[str, Any]:
        """A whole schema: sometimes with definitions, one of them recursive."""
        draw = self._random.random()
        if draw < 0.15:
            return self._tree()
        if draw < 0.3:
            shared = {"Point": self._object(1), "Name": self._string()}
            properties = {"p": {"$ref": "#/$defs/Point"}, "n": {"$ref": "#/$defs/Name", "description": "who"}}
            return {"type": "object", "properties": properties, "required": ["p"], "$defs": shared}
        return self._object(2) if draw < 0.85 else self._any(2)

    def _any(self, depth: int) -> dict[str, Any]:
        simple = [self._string, self._number, self._integer, self._literal, self._plain]
        deep = [self._object, self._array, self._tuple, self._any_of, self._one_of, self._all_of]
        if depth == 0 or self._random.random() < 0.5:
            return self._random.choice(simple)()
        make: Callable[[int], dict[str, Any]] = self._random.choice(deep)
        return make(depth - 1)

    def _object(self, depth: int) -> dict[str, Any]:
        names = self._random.sample(NAMES, self._random.randint(1, 4))
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: self._any(depth) for name in names},
            "required": [name for name in names if self._random.random() < 0.7],
        }
        draw = self._random.random()
        if draw < 0.6:
            schema["additionalProperties"] = False
        elif draw < 0.8:
            schema["additionalProperties"] = {"type": "integer", "minimum": 0, "maximum": 9}
        return schema

    def _array(self, depth: int) -> dict[str, Any]:
        least = self._random.randint(0, 2)
        most = least + self._random.randint(0, 2)
        return {"type": "array", "items": self._any(depth), "minItems": least, "maxItems": most}

    def _tuple(self, depth: int) -> dict[str, Any]:
        items = [self._any(depth) for _ in range(self._random.randint(1, 3))]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}

    def _any_of(self, depth: int) -> dict[str, Any]:
        return {"anyOf": [self._any(depth) for _ in range(2)]}

    def _one_of(self, depth: int) -> dict[str, Any]:
        if self._random.random() < 0.5:
            return {"oneOf": [self._string(), self._integer(), {"type": "null"}]}
        options = [
            {
                "type": "object",
                "properties": {"kind": {"const": kind}, "v": self._any(0)},
                "required": ["kind", "v"],
            }
            for kind in ("a", "b")
        ]
        return {"oneOf": options}

    def _all_of(self, depth: int) -> dict[str, Any]:
        one = {"type": "object", "properties": {"left": self._any(0)}, "required": ["left"]}
        other = {"properties": {"right": self._any(0)}, "required": ["right"]}
        return {"allOf": [one, other]}

    def _string(self) -> dict[str, Any]:
        draw = self._random.random()
        if draw < 0.35:
            return {"type": "string", "format": self._random.choice(FORMATS)}
        if draw < 0.6:
            return {"type": "string", "pattern": self._random.choice(PATTERNS), "maxLength": 24}
        least = self._random.randint(0, 3)
        return {"type": "string", "minLength": least, "maxLength": least + self._random.randint(0, 12)}

    def _number(self) -> dict[str, Any]:
        low = self._random.choice([0, -1.5, 10, 0.25, -1000])
        bounds = self._random.choice(
            [
                {"minimum": low, "maximum": low + 7},
                {"exclusiveMinimum": low, "maximum": low + 2.5},
                {"minimum": low, "exclusiveMaximum": low + 100},
            ]
        )
        return {"type": "number", **bounds}

    def _integer(self) -> dict[str, Any]:
        low = self._random.randint(-50, 50)
        bounds = self._random.choice(
            [{"minimum": low, "maximum": low + 20}, {"exclusiveMinimum": low, "exclusiveMaximum": low + 3}]
        )
        return {"type": "integer", **bounds}

    def _literal(self) -> dict[str, Any]:
        choices: list[Any] = ["red", "zwölf", "改", 3, -2.5, None, True, {"k": [1, "x"]}]
        if self._random.random() < 0.3:
            return {"const": self._random.choice(choices)}
        return {"enum": self._random.sample(choices, 3)}

    def _plain(self) -> dict[str, Any]:
        return {"type": self._random.choice(["boolean", "null", ["boolean", "null"]])}

    def _tree(self) -> dict[str, Any]:
        node = {
            "type": "object",
            "properties": {
                "value": self._any(0),
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["value", "next"],
            "additionalProperties": False,
        }
        return {"$ref": "#/$defs/node", "$defs": {"node": node}}


def schemas(count: int) -> list[dict[str, Any]]:
    return [SchemaWriter(seed).schema() for seed in range(count)]


def regexes(count: int) -> list[str]:
    """Expressions built of pieces, in the syntax that Python reads."""
    pieces = [
        "[a-z]+",
        r"\d{1,4}",
        "(yes|no)",
        "[^,;]{1,5}",
        r"\w\w",
        "x?y*z",
        "(ab|c){2}",
        r"\.",
        "é",
        "[A-F0-9]{2}",
        "( - |, )",
    ]
    draw = random.Random(7)
    found = []
    for _ in range(count):
        body = "".join(draw.choice(pieces) for _ in range(draw.randint(1, 5)))
        found.append(
            draw.choice([body, f"^{body}$", f"({body}|{draw.choice(pieces)})", f"(?:{body}){{1,2}}"])
        )
    return found


def grammars(count: int) -> list[str]:
    """GBNF and Lark in turn: lists, sums and nested brackets."""
    draw = random.Random(11)
    found = []
    for number in range(count):
        word = draw.choice(["cat", "Haus", "犬", "x1"])
        most = draw.randint(1, 4)
        if number % 2:
            rules = [
                f'start: item ("," item){{0,{most}}}\nitem: "{word}" | NUMBER\nNUMBER: /[0-9]{{1,3}}/',
                f'start: sum\nsum: term (" + " term){{0,{most}}}\nterm: "{word}" | "(" NUM ")"\nNUM: /[1-9]/',
            ]
        else:
            rules = [
                f'root ::= item ("," item){{0,{most}}}\nitem ::= "{word}" | [0-9]+',
                f'root ::= "[" root? "]" | "{word}"',
            ]
        found.append(draw.choice(rules))
    return found
