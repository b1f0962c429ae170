"""An expression means to the grammar engine what it means to its writer, or it is refused."""

from __future__ import annotations

import re
import warnings

import pytest
from constraint_tools import is_whole

from ferrum.constraints.constraint_compiler import ConstraintCompiler
from ferrum.core.constraint import Constraint
from ferrum.core.errors import InvalidConstraint
from ferrum.testing.byte_tokenizer import ByteTokenizer
from random_answers import random_answer
from schema_corpus import regexes

TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "xay",
    "a\n",
    "a-b",
    "7",
    "٣",
    "é",
    "_",
    " ",
    "/",
    "a/b",
    "&&",
    "[",
    "A",
    "aaa",
    "x.y",
]
PATTERNS = [
    "a|b+",
    "a",
    "^a",
    "a$",
    "^a|b$",
    "(^ab?$)",
    "(a|(b|c)){1,2}",
    r"\d",
    r"\w+",
    "[a&&b]+",
    "[[]",
    "[a-c]{2,}?",
    "[^a-c/]",
    ".",
    r"\/",
    r"x\.y",
    "(?i)AB",
    "(?P<first>a)b",
    "(?<first>a)b",
    "a{0}b",
    "",
]


def python_compiled(pattern: str) -> re.Pattern[str]:
    """Python itself warns of sets such as [a&&b], which it reads as ECMAScript does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(pattern.replace("(?<first>", "(?P<first>"))


@pytest.mark.parametrize("pattern", PATTERNS[:-1])
def test_an_answer_is_what_the_whole_expression_matches(compiler: ConstraintCompiler, pattern: str) -> None:
    expected = python_compiled(pattern)
    for text in TEXTS:
        if text and is_whole(compiler, Constraint.regex(pattern), text) != bool(expected.fullmatch(text)):
            # Where dialects differ, only what all of them allow is allowed.
            assert text in ("a\n", "٣", "é")
            assert expected.fullmatch(text)


@pytest.mark.parametrize("pattern", [*PATTERNS, r"^\S*$", r"^[^\s\d]$", r"^\W$", r"^[\W\d]$", r"\D"])
def test_a_pattern_in_a_schema_is_searched_as_python_searches_it(
    compiler: ConstraintCompiler, pattern: str
) -> None:
    expected = python_compiled(pattern)
    constraint = Constraint.json_schema({"type": "string", "pattern": pattern})
    for text in TEXTS:
        written = '"' + text.replace("\n", "\\n") + '"'
        if is_whole(compiler, constraint, written):
            assert expected.search(text), text
        elif text not in ("a\n", "٣", "é"):
            assert not expected.search(text), text


@pytest.mark.parametrize(
    "pattern",
    [
        "foo**",
        "[a-",
        "(",
        "(?=a)b",
        "(?<!a)b",
        r"(a)\1",
        "a^b",
        "(a$|b)c",
        r"\bfoo",
        "(?m)^a",
        "a++",
        "(?>a)b",
        "(a|aa)*{1,5000}",
        "a{1,200000}",
        r"\p{L}",
        "x" * 60_000,
    ],
)
def test_what_cannot_be_enforced_is_refused_in_one_line(compiler: ConstraintCompiler, pattern: str) -> None:
    with pytest.raises(InvalidConstraint) as caught:
        compiler.compile(Constraint.regex(pattern))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("bound", [127, 128, 129, 1000])
def test_bounds_of_repetition_hold_at_the_borders(compiler: ConstraintCompiler, bound: int) -> None:
    constraint = Constraint.regex(f"[^\\n]{{1,{bound}}}")
    assert is_whole(compiler, constraint, "x" * bound)
    assert not is_whole(compiler, constraint, "x" * (bound + 1))


def test_random_answers_of_generated_expressions_match(compiler: ConstraintCompiler) -> None:
    refused = 0
    for seed, pattern in enumerate(regexes(100)):
        try:
            start = compiler.compile(Constraint.regex(pattern)).start()
        except InvalidConstraint:
            refused += 1
            continue
        token_ids, gate = random_answer(start, seed, ByteTokenizer.EOS_ID, most=200)
        if gate.may_end:
            assert re.fullmatch(pattern, bytes(token_ids).decode()), pattern
    assert refused <= 5
