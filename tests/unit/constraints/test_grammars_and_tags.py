"""Choices, Lark and GBNF grammars, structural tags, and constraints that start after a delimiter."""

from __future__ import annotations

import pytest
from constraint_tools import is_whole, read

from ferrum.constraints.constraint_compiler import ConstraintCompiler
from ferrum.core.constraint import Constraint
from ferrum.core.errors import InvalidConstraint
from ferrum.testing.byte_tokenizer import ByteTokenizer
from random_answers import random_answer
from schema_corpus import grammars

EOS = ByteTokenizer.EOS_ID
TAGS = {
    "type": "structural_tag",
    "triggers": ["<f="],
    "structures": [
        {"begin": "<f=add>", "schema": {"type": "object", "required": ["n"]}, "end": "</f>"},
        {"begin": "<f=now>", "schema": {"const": None}, "end": "</f>"},
    ],
}


def test_a_choice_is_one_of_the_texts_and_nothing_else(compiler: ConstraintCompiler) -> None:
    constraint = Constraint.choice(["yes", "no/maybe", "ja, wohl", ".*", "ye"])
    for text in ("yes", "no/maybe", "ja, wohl", ".*", "ye"):
        assert is_whole(compiler, constraint, text)
    for text in ("y", "yess", "no", "x"):
        assert not is_whole(compiler, constraint, text)


@pytest.mark.parametrize(
    ("grammar", "valid", "invalid"),
    [
        ('root ::= "a" root "b" | ""', ["ab", "aabb"], ["aab", "ba"]),
        ('root ::= root "a" | "b"', ["b", "baa"], ["a", "ab"]),
        ('start: "x" NUM ("," NUM)*\nNUM: /[0-9]+/', ["x1", "x1,22"], ["x", "x1,"]),
        ('start: "a" value\nvalue: %json {"type": "integer", "maximum": 3}', ["a2"], ["a4"]),
        ('root ::= "🙂é漢"', ["🙂é漢"], ["🙂"]),
    ],
)
def test_sentences_of_a_grammar(
    compiler: ConstraintCompiler, grammar: str, valid: list[str], invalid: list[str]
) -> None:
    for text in valid:
        assert is_whole(compiler, Constraint.grammar(grammar), text), text
    for text in invalid:
        assert not is_whole(compiler, Constraint.grammar(grammar), text), text


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= root",
        'root ::= "a',
        "nonsense",
        'root ::= "a" b',
        "start: NOPE",
        "start: /[/",
        "root ::= " + "(" * 3000,
    ],
)
def test_a_grammar_that_cannot_be_read_or_fulfilled_is_refused_in_one_line(
    compiler: ConstraintCompiler, grammar: str
) -> None:
    with pytest.raises(InvalidConstraint) as caught:
        compiler.compile(Constraint.grammar(grammar))
    assert "\n" not in str(caught.value)


def test_generated_grammars_are_followed_to_their_ends(compiler: ConstraintCompiler) -> None:
    num_ends = 0
    for seed, grammar in enumerate(grammars(30)):
        token_ids, gate = random_answer(compiler.compile(Constraint.grammar(grammar)).start(), seed, EOS)
        num_ends += gate.may_end
        text = bytes(token_ids).decode()
        assert not gate.may_end or is_whole(compiler, Constraint.grammar(grammar), text)
    assert num_ends >= 25


def test_text_is_free_until_a_trigger_begins_a_tag(compiler: ConstraintCompiler) -> None:
    constraint = Constraint.structural_tag(TAGS)
    for text in ("hello", "", 'a <f=add>{"n":1}</f> b <f=now>null</f>', "a < b"):
        assert not text or is_whole(compiler, constraint, text)
    start = compiler.compile(constraint).start()
    for text in ("a <f=x", "<f=now>1", "<f=add>{}", '<f=add>{"n":1}<'):
        gate = read(start, text)
        assert gate is None or not gate.may_end, text


@pytest.mark.parametrize(
    "change",
    [
        {"triggers": []},
        {"triggers": ["<other"]},
        {"structures": [{"begin": "<f=a>", "schema": {"uniqueItems": True}, "end": ""}]},
        {"structures": [{"begin": "<f=a>", "end": ""}]},
        {"structures": []},
        {"format": {}},
    ],
)
def test_tags_that_are_wrong_are_refused(compiler: ConstraintCompiler, change: dict[str, object]) -> None:
    with pytest.raises(InvalidConstraint):
        compiler.compile(Constraint.structural_tag(TAGS | change))


def test_what_comes_before_the_delimiter_is_free_and_the_answer_cannot_end_there(
    compiler: ConstraintCompiler,
) -> None:
    constraint = Constraint.json_object().after("</think>")
    start = compiler.compile(constraint).start()
    free = read(start, 'Let me {think} </thin about "it". ')
    assert free is not None
    assert not free.may_end
    assert not free.mask[EOS // 32] >> (EOS % 32) & 1
    assert is_whole(compiler, constraint, 'hm </think>\n\n{"a": 1}')
    assert is_whole(compiler, constraint, "</think>{}")
    for text in ("hm </think>x", "hm </think>\n\n\n\n\n{"):
        assert read(start, text) is None


def test_a_control_token_can_be_the_delimiter(compiler: ConstraintCompiler) -> None:
    tokenizer = ByteTokenizer()
    delimiter = tokenizer.token_bytes(tokenizer.BOS_ID).decode() or "<bos>"
    gate = compiler.compile(Constraint.regex("[0-9]+").after(delimiter)).start()
    for token_id in (*b"why not ", tokenizer.BOS_ID, *b"42"):
        gate = gate.after(token_id)
        assert gate.error is None
    assert gate.may_end
    assert gate.look().result(10) is None
