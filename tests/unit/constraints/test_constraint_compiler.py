"""Compiled once, within limits, and kept; every place of an answer is a value of its own."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from constraint_tools import byte_compiler, read

from ferrum.constraints.constraint_compiler import CACHE_ENTRIES, ConstraintCompiler
from ferrum.constraints.constraint_tokenizer import ConstraintTokenizer
from ferrum.core.constraint import Constraint
from ferrum.core.errors import ConstraintTooComplex, ForbiddenToken, InternalError, InvalidConstraint
from ferrum.testing.byte_tokenizer import ByteTokenizer
from random_answers import allowed_ids, random_answer

EOS = ByteTokenizer.EOS_ID


class BrokenTokenizer(ByteTokenizer):
    num_reads = 0

    def token_bytes(self, token_id: int) -> bytes:
        BrokenTokenizer.num_reads += 1
        raise ValueError("unreadable")


def test_equal_constraints_are_compiled_once_and_refusals_are_kept_too() -> None:
    compiler = byte_compiler()
    try:
        schema = {"type": "object", "title": "x"}
        assert compiler.compile(Constraint.json_schema(schema)) is compiler.compile(
            Constraint.json_schema(dict(schema))
        )
        errors = []
        for _ in range(3):
            with pytest.raises(InvalidConstraint) as caught:
                compiler.compile(Constraint.regex("("))
            errors.append(caught.value)
            depth = 0
            trace = caught.value.__traceback__
            while trace is not None:
                depth, trace = depth + 1, trace.tb_next
            assert depth < 6
        assert errors[0] is errors[2]
    finally:
        compiler.close()


def test_the_cache_is_bounded() -> None:
    compiler = byte_compiler()
    try:
        first = compiler.compile(Constraint.regex("a0"))
        for number in range(1, CACHE_ENTRIES + 1):
            compiler.compile(Constraint.regex(f"a{number}"))
        assert len(compiler._known) == CACHE_ENTRIES
        assert compiler.compile(Constraint.regex("a0")) is not first
    finally:
        compiler.close()


def test_the_vocabulary_is_read_once_also_when_it_cannot_be_read() -> None:
    tokenizer = ConstraintTokenizer(BrokenTokenizer())
    messages = []
    for _ in range(2):
        with pytest.raises(InternalError, match="structured-output runtime") as caught:
            tokenizer.get()
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert BrokenTokenizer.num_reads == 1


async def test_a_compilation_that_takes_too_long_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = ConstraintCompiler(ByteTokenizer(), 258, compile_s=0.05)
    compiler.compile(Constraint.regex("b"))
    may_end = threading.Event()
    build = compiler._build
    monkeypatch.setattr(compiler, "_build", lambda constraint: (may_end.wait(10), build(constraint))[1])
    try:
        started = time.monotonic()
        with pytest.raises(ConstraintTooComplex):
            compiler.compile(Constraint.regex("a+"))
        with pytest.raises(ConstraintTooComplex):
            await compiler.compile_beside(Constraint.regex("a+"))
        assert time.monotonic() - started < 2
        may_end.set()
        # It went on beside, and is there for the next one.
        for _ in range(200):
            if compiler._known[Constraint.regex("a+")].done():
                break
            await asyncio.sleep(0.01)
        assert (await compiler.compile_beside(Constraint.regex("a+"))).start().may_end is False
    finally:
        may_end.set()
        compiler.close()


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint.json_schema({"enum": [f"value {i} and {i * 7919 % 10007}" for i in range(3000)]}),
        Constraint.json_schema({"type": "string", "pattern": "^((a|aa)*){1,5000}$"}),
        Constraint.json_schema({"type": "string", "pattern": "^((a{1,1000}){1,1000})$"}),
        Constraint.json_schema({"type": "array", "maxItems": 100_000}),
        Constraint.json_schema({"type": "string", "maxLength": 2**64 - 1}),
        Constraint.json_schema({"type": "array", "minItems": 100_000}),
        Constraint.json_schema('{"properties":{"p":' * 60 + "{}" + "}}" * 60),
        Constraint.json_schema('{"items":' * 3000 + "{}" + "}" * 3000),
        Constraint.json_schema(
            {
                "allOf": [
                    {"anyOf": [{"properties": {f"p{i}{j}": {"const": j}}} for j in range(6)]}
                    for i in range(8)
                ]
            }
        ),
        Constraint.regex("(.*a){50}b"),
        Constraint.regex("(a?){2000}a{2000}"),
        Constraint.choice([f"choice {i}" for i in range(5000)]),
    ],
    ids=range(12),
)
def test_pathological_constraints_are_answered_or_refused_in_time(
    compiler: ConstraintCompiler, constraint: Constraint
) -> None:
    started = time.monotonic()
    try:
        gate = compiler.compile(constraint).start()
        for _ in range(30):
            ids = allowed_ids(gate)
            if gate.is_complete or gate.error is not None:
                break
            gate = gate.after(ids[len(ids) // 2])
    except (InvalidConstraint, ConstraintTooComplex):
        pass  # Refused, which is an answer too.
    assert time.monotonic() - started < 5


def test_a_place_is_the_same_whatever_was_looked_at_meanwhile(compiler: ConstraintCompiler) -> None:
    compiled = compiler.compile(Constraint.json_object())
    token_ids, _ = random_answer(compiled.start(), 5, EOS)
    plain, looked = compiled.start(), compiled.start()
    for token_id in token_ids:
        assert (plain.mask == looked.mask).all()
        # A drafted road, of which the answer takes nothing, before it goes its own way.
        drafted = looked
        for _ in range(3):
            ids = allowed_ids(drafted)
            if drafted.is_complete or not ids:
                break
            drafted = drafted.after(ids[-1])
        plain, looked = plain.after(token_id), looked.after(token_id)
        assert looked.after(token_id) is looked.after(token_id)
    assert plain.is_complete == looked.is_complete
    assert plain.look().result(10) is looked.look().result(10) is None


def test_a_place_knows_whether_it_may_end_also_when_others_were_looked_at_since(
    compiler: ConstraintCompiler,
) -> None:
    gate = compiler.compile(Constraint.regex("a(bc)?|ax")).start()
    first = gate.after(ord("a"))
    roads = [first.after(ord("b")), first.after(ord("x")), first.after(ord("b")).after(ord("c"))]
    assert [place.may_end for place in (gate, first, *roads)] == [False, True, False, True, True]
    assert [place.is_complete for place in (gate, first, *roads)] == [False, False, False, True, True]
    assert first.after(ord("x")) is roads[1]
    assert first.look().result(10) is None


def test_a_token_that_is_not_allowed_is_an_error_of_that_road_alone(compiler: ConstraintCompiler) -> None:
    gate = compiler.compile(Constraint.regex("ab")).start()
    assert isinstance(gate.after(ord("x")).error, ForbiddenToken)
    assert not gate.after(ord("x")).mask.any()
    end = read(gate, "ab")
    assert end is not None
    assert end.is_complete


def test_an_answer_may_only_end_where_its_value_is_complete(compiler: ConstraintCompiler) -> None:
    gate = compiler.compile(Constraint.json_object()).start()
    for byte in b'{"a": [1':
        assert not gate.mask[EOS // 32] >> (EOS % 32) & 1
        gate = gate.after(byte)
    assert gate.look().result(10) == "it ended before its value was complete"
    regex = compiler.compile(Constraint.regex("a+")).start().after(ord("a"))
    assert regex.mask[EOS // 32] >> (EOS % 32) & 1
    assert regex.after(EOS).is_complete
    assert regex.after(EOS).look().result(10) is None


def test_masks_have_the_models_length_whatever_the_vocabulary_of_the_tokenizer() -> None:
    for size in (200, 258, 1000):
        compiler = ConstraintCompiler(ByteTokenizer(), size)
        try:
            gate = compiler.compile(Constraint.regex("[a-c]+")).start()
            assert gate.mask.shape == (-(-size // 32),)
            assert allowed_ids(gate.after(ord("b")))[:3] == list(b"abc")
            assert max(allowed_ids(gate.after(ord("b")))) < max(size, 258)
        finally:
            compiler.close()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Constraint.regex(""), "empty"),
        (lambda: Constraint.choice([]), "choice"),
        (lambda: Constraint.choice(["a", ""]), "choice"),
        (lambda: Constraint.choice("abc"), "choice"),
        (lambda: Constraint.json_schema({"const": float("nan")}), "JSON"),
        (lambda: Constraint.json_schema({"const": "\ud83d"}), "surrogate"),
        (lambda: Constraint.regex("x" * 5_000_000), "limit"),
        (lambda: Constraint.json_object().after(""), "starts_after"),
    ],
)
def test_a_constraint_that_says_nothing_is_refused_when_it_is_built(make: object, problem: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidConstraint, match=problem):
        make()
