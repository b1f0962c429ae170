"""Schemas are enforced exactly or refused with keyword and place; nothing between."""

from __future__ import annotations

import json
from typing import Any

import pytest
from constraint_tools import is_whole, read
from jsonschema import Draft202012Validator

from ferrum.constraints.constraint_compiler import ConstraintCompiler
from ferrum.constraints.strict_schema import with_all_required
from ferrum.core.constraint import Constraint, JsonSpacing
from ferrum.core.errors import InvalidConstraint
from ferrum.testing.byte_tokenizer import ByteTokenizer
from random_answers import random_answer
from schema_corpus import schemas

ENFORCED: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"type": "integer", "minimum": 3, "exclusiveMaximum": 6}, ["3", "5"], ["2", "6", "3.0", "03"]),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, ["0.5", "1"], ["0", "1.1", "-1"]),
    ({"type": "number", "multipleOf": 0.1}, ["0.3", "1.2"], ["0.25"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"äöü"'], ['"a"', '"abcd"']),
    ({"type": "string", "pattern": "b+"}, ['"abbc"'], ['"ac"']),
    ({"type": "string", "pattern": "^a.c$", "maxLength": 3}, ['"abc"'], ['"xabc"', '"a\\nc"']),
    ({"enum": ["x", 2, None]}, ['"x"', "2", "null"], ['"y"', "3"]),
    ({"const": {"a": [1, "é"]}}, ['{"a": [1, "é"]}'], ["{}"]),
    ({"type": ["boolean", "null"]}, ["true", "null"], ["1"]),
    (
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
        ["[1]", "[1, 2]"],
        ["[]", "[1,2,3]"],
    ),
    ({"type": "array", "prefixItems": [{"const": 1}], "items": False}, ["[]", "[1]"], ["[2]", "[1,1]"]),
    ({"type": "array", "uniqueItems": True, "maxItems": 1, "items": {}}, ["[1]"], ["[1,1]"]),
    (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        },
        ['{"a": 1}'],
        ["{}", '{"a": "x"}', '{"a":1,"b":2}', '{"b":1}'],
    ),
    (
        {"type": "object", "patternProperties": {"^n": {"type": "null"}}, "additionalProperties": False},
        ['{"nx":null}'],
        ['{"x":null}'],
    ),
    (
        {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
        ['{"q":1}'],
        ["{}", '{"q":""}'],
    ),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, ["1", "null"], ['"x"']),
    ({"oneOf": [{"type": "integer", "maximum": 5}, {"type": "integer", "minimum": 10}]}, ["5", "10"], ["7"]),
    ({"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 4}]}, ["3"], ["1", "5"]),
    ({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "integer"}}}, ["7"], ['"x"']),
    (
        {"$ref": "#/$defs/n", "maximum": 3, "$defs": {"n": {"type": "integer", "minimum": 0}}},
        ["2"],
        ["4", "-1"],
    ),
    ({"type": "integer", "format": "int32"}, ["2147483647"], ["2147483648"]),
    (
        {"properties": {"größe": {"type": "integer"}, "😀": {}}, "type": "object", "required": ["größe"]},
        ['{"größe":1,"😀":[]}'],
        ['{"größe":"x"}'],
    ),
    (True, ["1", "{}"], ["x"]),
]

REFUSED: list[tuple[Any, str | None, str]] = [
    ({"type": "array", "uniqueItems": True}, "uniqueItems", ""),
    ({"properties": {"a/b": {"not": {"type": "null"}}}}, "not", "/properties/a~1b"),
    ({"items": {"if": {}, "then": {}}}, "if", "/items"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired", ""),
    ({"anyOf": [{}, {"contains": {}}]}, "contains", "/anyOf/1"),
    ({"type": "object", "propertyNames": {"pattern": "a"}}, "propertyNames", ""),
    ({"type": "object", "unevaluatedProperties": False}, "unevaluatedProperties", ""),
    ({"type": "object", "minProperties": 2}, "minProperties", ""),
    ({"type": "string", "nullable": True}, "nullable", ""),
    ({"properties": {"x": {"minlength": 3}}}, "minlength", "/properties/x"),
    ({"type": "string", "format": "color"}, "format", ""),
    ({"type": "string", "pattern": "(?=a)b"}, "pattern", ""),
    ({"properties": {"z": {"pattern": "[a-"}}}, "pattern", "/properties/z"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf", ""),
    ({"$defs": {"o": {"oneOf": [{}, {}]}}, "items": {"$ref": "#/$defs/o"}}, "oneOf", "/$defs/o"),
    ({"$ref": "https://example.com/schema"}, "$ref", ""),
    ({"items": {"$ref": "#/$defs/missing"}}, "$ref", "/items"),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "$ref", ""),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}, "$ref", ""),
    ({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}, "$ref", ""),
    ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "$ref", ""),
    (
        {
            "properties": {"s": {"type": "string", "minLength": 5, "maxLength": 3}},
            "required": ["s"],
            "type": "object",
        },
        "minLength",
        "/properties/s",
    ),
    ({"type": "integer", "minimum": 2**60}, "minimum", ""),
    ({"type": "string", "minLength": 10**9}, "minLength", ""),
    ({"enum": ["\x01"]}, "enum", ""),
    ({"$schema": "https://example.com/mine"}, "$schema", ""),
    ({"items": {"$id": "urn:x"}}, "$id", "/items"),
    ({"items": [{}]}, "items", ""),
    ({"type": "thing"}, "type", ""),
    ({"required": "a"}, "required", ""),
    ({"properties": {"a": 1}}, None, "/properties/a"),
    ({"properties": [1]}, "properties", ""),
    ({"enum": "ab"}, "enum", ""),
    ({"maxLength": "5"}, "maxLength", ""),
    ({"minItems": -1}, "minItems", ""),
    ({"minimum": "1"}, "minimum", ""),
    ({"anyOf": {}}, "anyOf", ""),
    ({"pattern": 5}, "pattern", ""),
    ({"additionalProperties": 3}, None, "/additionalProperties"),
    ({"uniqueItems": "yes"}, "uniqueItems", ""),
    ({"multipleOf": 0}, "multipleOf", ""),
    (["no", "schema"], None, ""),
]


@pytest.mark.parametrize(("schema", "valid", "invalid"), ENFORCED, ids=lambda each: json.dumps(each)[:50])
def test_values_are_allowed_exactly_if_they_are_valid(
    compiler: ConstraintCompiler, schema: Any, valid: list[str], invalid: list[str]
) -> None:
    constraint = Constraint.json_schema(schema)
    for text in valid:
        assert is_whole(compiler, constraint, text), text
    for text in invalid:
        assert not is_whole(compiler, constraint, text), text


@pytest.mark.parametrize(("schema", "keyword", "pointer"), REFUSED, ids=lambda each: json.dumps(each)[:50])
def test_what_cannot_be_enforced_is_refused_with_keyword_and_place(
    compiler: ConstraintCompiler, schema: Any, keyword: str | None, pointer: str
) -> None:
    with pytest.raises(InvalidConstraint) as caught:
        compiler.compile(Constraint.json_schema(json.dumps(schema)))
    assert (caught.value.keyword, caught.value.pointer) == (keyword, pointer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", [r"\u0061", r"\u0061\u0062"])
def test_a_declared_name_cannot_come_as_another_one_through_an_escape(
    compiler: ConstraintCompiler, key: str
) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}, "ab": {"const": 2}}}
    assert read(compiler.compile(Constraint.json_schema(schema)).start(), '{"' + key) is None


def test_declared_properties_come_once_and_never_as_additional_ones(compiler: ConstraintCompiler) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"const": "foo"}, "b": {"const": "bar"}},
        "required": ["b"],
    }
    constraint = Constraint.json_schema(schema)
    assert is_whole(compiler, constraint, '{"b":"bar","c":1}')
    for text in (
        '{"b":"bar","a":1}',
        '{"b":"bar","b":"bar"}',
        '{"b":"x"}',
        '{"a":"foo","a":"foo","b":"bar"}',
    ):
        assert not is_whole(compiler, constraint, text)


def test_blanks_are_bounded_everywhere_and_none_follow_the_value(compiler: ConstraintCompiler) -> None:
    start = compiler.compile(Constraint.json_object()).start()
    for text in (" {", "{  ", "{\n\n", "{\n" + " " * 17, "{} ", "{}\n"):
        assert read(start, text) is None, text
    for text in ('{ "a" : [ 1 , 2 ] }', '{\n    "a": {\n        "b": 1\n    }\n}'):
        assert is_whole(compiler, Constraint.json_object(), text)
    compact = Constraint.json_object(JsonSpacing.COMPACT)
    assert is_whole(compiler, compact, '{"a":1}')
    assert not is_whole(compiler, compact, '{"a": 1}')


def test_drafts_write_definitions_their_own_way(compiler: ConstraintCompiler) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"p": {"type": "integer"}},
        "type": "array",
        "items": {"$ref": "#/definitions/p"},
    }
    assert is_whole(compiler, Constraint.json_schema(schema), "[1, 2]")


def test_a_key_of_the_engine_in_a_schema_changes_nothing(compiler: ConstraintCompiler) -> None:
    schema = {"type": "integer", "x-guidance": {"lenient": True, "whitespace_pattern": "[ ]+"}, "maximum": 3}
    assert not is_whole(compiler, Constraint.json_schema(schema), "4")
    nested = {"type": "array", "items": {"uniqueItems": True}, "x-guidance": {"lenient": True}}
    with pytest.raises(InvalidConstraint):
        compiler.compile(Constraint.json_schema(nested))


def test_strict_mode_requires_every_property() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"properties": {"b": {}}}}, "c": {}},
        "required": ["c"],
        "$defs": {"d": {"properties": {"e": {"enum": [{"properties": {"x": 1}}]}}}},
    }
    strict = with_all_required(schema)
    assert strict["required"] == ["a", "c"]
    assert strict["properties"]["a"]["items"]["required"] == ["b"]
    assert strict["$defs"]["d"]["required"] == ["e"]
    assert strict["$defs"]["d"]["properties"]["e"] == {"enum": [{"properties": {"x": 1}}]}
    assert schema["required"] == ["c"]


def test_random_answers_of_generated_schemas_validate(compiler: ConstraintCompiler) -> None:
    wrong, refused, num_answers = [], 0, 0
    for seed, schema in enumerate(schemas(60)):
        try:
            start = compiler.compile(Constraint.json_schema(schema)).start()
        except InvalidConstraint:
            refused += 1
            continue
        token_ids, gate = random_answer(start, seed, ByteTokenizer.EOS_ID)
        if gate.may_end:
            num_answers += 1
            value = json.loads(bytes(token_ids))
            checker = Draft202012Validator.FORMAT_CHECKER
            if next(Draft202012Validator(schema, format_checker=checker).iter_errors(value), None):
                wrong.append((schema, bytes(token_ids)))
            assert gate.look().result(10) is None
    assert not wrong
    assert refused <= 6
    assert num_answers >= 40


def test_a_declared_name_comes_once_and_every_value_of_a_repeated_other_name_fulfils_its_schema(
    compiler: ConstraintCompiler,
) -> None:
    """JSON allows a name twice; readers keep one of the values, and not all the same one."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "integer"},
    }
    constraint = Constraint.json_schema(json.dumps(schema))
    assert is_whole(compiler, constraint, '{"a": 1, "x": 1, "x": 2}')
    for repeated in ('{"a": 1, "a": 2}', '{"x": 1, "a": 2}', '{"x": "s", "x": 1}', '{"x": 1, "x": "s"}'):
        assert not is_whole(compiler, constraint, repeated), repeated
