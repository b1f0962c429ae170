"""How a client says what the answer must be, in OpenAI's words and in vLLM's, and what it must not say."""

from typing import Any

import pytest
from asgi_client import post
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.core.constraint import Constraint, JsonSpacing
from ferrum.core.errors import AnswerCutByStop, BrokenConstraint, ConstraintTooComplex, InvalidConstraint

ROUTES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/completions", {"prompt": "hi"}),
]
SCHEMA = {"type": "object", "properties": {"ä": {"type": "integer"}}}
TAGS = {
    "type": "structural_tag",
    "triggers": ["<f"],
    "structures": [{"begin": "<f>", "schema": {}, "end": ""}],
}

GOOD: list[tuple[dict[str, Any], Constraint | None]] = [
    ({"response_format": {"type": "text"}}, None),
    ({"response_format": None, "structured_outputs": None}, None),
    ({"response_format": {"type": "json_object"}}, Constraint.json_object()),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, Constraint.json_schema(SCHEMA)),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
        Constraint.json_schema(SCHEMA),
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": True}}},
        Constraint.json_schema(SCHEMA | {"required": ["ä"]}),
    ),
    ({"response_format": TAGS}, Constraint.structural_tag(TAGS)),
    ({"structured_outputs": {"json": SCHEMA}}, Constraint.json_schema(SCHEMA)),
    ({"structured_outputs": {"json": '{"type": "null"}'}}, Constraint.json_schema('{"type": "null"}')),
    ({"structured_outputs": {"regex": "a+"}}, Constraint.regex("a+")),
    ({"structured_outputs": {"choice": ["a", "b"]}}, Constraint.choice(["a", "b"])),
    ({"structured_outputs": {"grammar": 'root ::= "a"'}}, Constraint.grammar('root ::= "a"')),
    ({"structured_outputs": {"json_object": True}}, Constraint.json_object()),
    ({"structured_outputs": {"structural_tag": TAGS}}, Constraint.structural_tag(TAGS)),
    (
        {"structured_outputs": {"json_object": True, "disable_any_whitespace": True}},
        Constraint.json_object(JsonSpacing.COMPACT),
    ),
    ({"structured_outputs": {"regex": "a", "starts_after": "</t>"}}, Constraint.regex("a").after("</t>")),
    (
        {"structured_outputs": {"regex": "a", "json": None}, "response_format": {"type": "text"}},
        Constraint.regex("a"),
    ),
]

BAD: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "json"}}, "response_format.type"),
    ({"response_format": {}}, "response_format.type"),
    ({"response_format": "json_object"}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "schema": {}}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}}},
        "response_format.json_schema.strict",
    ),
    ({"structured_outputs": {}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
    ({"structured_outputs": {"regx": "a"}}, "structured_outputs.regx"),
    ({"structured_outputs": {"regex": 3}}, "structured_outputs.regex"),
    ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs"),
    ({"structured_outputs": {"choice": "ab"}}, "structured_outputs"),
    ({"structured_outputs": {"grammar": ["a"]}}, "structured_outputs.grammar"),
    (
        {"structured_outputs": {"json": {}, "whitespace_pattern": " *"}},
        "structured_outputs.whitespace_pattern",
    ),
    (
        {"structured_outputs": {"json": {}, "disable_additional_properties": True}},
        "structured_outputs.disable_additional_properties",
    ),
    (
        {"structured_outputs": {"json": {}}, "response_format": {"type": "json_object"}},
        "structured_outputs",
    ),
    ({"guided_json": {}}, "guided_json"),
    ({"guided_regex": "a"}, "guided_regex"),
]


@pytest.fixture
async def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.mark.parametrize(("path", "content"), ROUTES)
@pytest.mark.parametrize(("fields", "constraint"), GOOD)
async def test_constraints_reach_the_engine(
    app: Starlette,
    engine: ScriptedEngine,
    path: str,
    content: dict[str, Any],
    fields: dict[str, Any],
    constraint: Constraint | None,
) -> None:
    assert (await post(app, path, content | fields)).status == 200
    assert engine.requests[0].sampling.constraint == constraint


@pytest.mark.parametrize(("path", "content"), ROUTES)
@pytest.mark.parametrize(("fields", "param"), BAD)
async def test_what_is_no_constraint_is_refused_by_name(
    app: Starlette,
    engine: ScriptedEngine,
    path: str,
    content: dict[str, Any],
    fields: dict[str, Any],
    param: str,
) -> None:
    for stream in (False, True):
        answer = await post(app, path, content | fields | {"stream": stream})
        assert (answer.status, answer.json["error"]["param"]) == (400, param)
    assert not engine.requests


@pytest.mark.parametrize(("path", "content"), ROUTES)
@pytest.mark.parametrize("name", ["response_format", "structured_outputs"])
async def test_a_refusal_names_keyword_place_and_the_clients_own_field(
    app: Starlette, engine: ScriptedEngine, path: str, content: dict[str, Any], name: str
) -> None:
    fields = {
        "response_format": {"response_format": {"type": "json_object"}},
        "structured_outputs": {"structured_outputs": {"json_object": True}},
    }[name]
    for error, code in (
        (InvalidConstraint("is not supported", "not", "/items"), "invalid_constraint"),
        (ConstraintTooComplex("it takes long"), "constraint_too_complex"),
    ):
        engine.refusal = error
        answer = await post(app, path, content | fields)
        told = answer.json["error"]
        assert (answer.status, told["param"], told["code"]) == (400, name, code)
        assert told["message"].startswith(f"{name}: ")
    assert told["message"].endswith("make it simpler")


@pytest.mark.parametrize(("path", "content"), ROUTES)
@pytest.mark.parametrize(
    ("failure", "status"),
    [(BrokenConstraint("r", "it is wrong"), 500), (AnswerCutByStop("r", "\n", "it has no end"), 400)],
)
async def test_an_answer_that_broke_its_constraint_is_no_answer(
    app: Starlette,
    engine: ScriptedEngine,
    path: str,
    content: dict[str, Any],
    failure: BrokenConstraint,
    status: int,
) -> None:
    """What the request itself brought about is the request's fault: a client sends a 500 again, in vain."""
    engine.failure = failure
    answer = await post(app, path, content)
    assert (answer.status, answer.json["error"]["code"]) == (status, "constraint_not_fulfilled")
    streamed = await post(app, path, content | {"stream": True})
    assert streamed.objects[-1]["error"]["code"] == "constraint_not_fulfilled"
