"""What the formats' expressions allow, the formats' own validators find valid; known cases are told apart."""

from __future__ import annotations

import re

import pytest
from jsonschema import Draft202012Validator

from ferrum.constraints.constraint_compiler import ConstraintCompiler
from ferrum.constraints.string_formats import FORMATS
from ferrum.core.constraint import Constraint
from ferrum.testing.byte_tokenizer import ByteTokenizer
from random_answers import random_answer

CASES = {
    "date": (
        ["2024-02-29", "2000-02-29", "0001-01-31"],
        ["2023-02-29", "1900-02-29", "2024-04-31", "0000-01-01", "2024-13-01"],
    ),
    "time": (["23:59:59Z", "00:00:00.5+01:30"], ["24:00:00Z", "12:00:00", "12:00:60Z"]),
    "date-time": (["2024-02-29T12:00:00Z"], ["2023-02-29T12:00:00Z", "2024-01-01 12:00:00Z", "2024-01-01"]),
    "duration": (["P1Y2M3D", "PT1H30M", "P3W", "P1DT1S"], ["P", "PT", "1D", "P1H", "P1WT1H"]),
    "email": (["a.b+c@example.com"], ["a@", "@b", "a..b@c", "a b@c"]),
    "hostname": (["example.com", "a"], ["-a", "a-", "a..b", "a_b"]),
    "ipv4": (["0.0.0.0", "255.10.1.99"], ["256.1.1.1", "1.1.1", "01.1.1.1"]),
    "ipv6": (
        ["::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::"],
        ["1:2", ":::", "1:2:3:4:5:6:7:8:9", "g::"],
    ),
    "uri": (
        ["https://a.b:80/c/d?e=f#g", "mailto:x@y.z", "urn:a:b"],
        ["//a.b", "a b:c", "http://", "https://a b"],
    ),
    "uuid": (
        ["123e4567-e89b-12d3-a456-426614174000"],
        ["123e4567e89b12d3a456426614174000", "g23e4567-e89b-12d3-a456-426614174000"],
    ),
}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_known_cases_are_told_apart(name: str) -> None:
    valid, invalid = CASES[name]
    assert all(re.fullmatch(FORMATS[name], text) for text in valid)
    assert not any(re.fullmatch(FORMATS[name], text) for text in invalid)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_text_that_is_allowed_is_valid_to_the_formats_own_validator(
    compiler: ConstraintCompiler, name: str
) -> None:
    checker = Draft202012Validator.FORMAT_CHECKER
    assert name in checker.checkers
    start = compiler.compile(Constraint.json_schema({"type": "string", "format": name})).start()
    num_texts = 0
    for seed in range(60):
        token_ids, gate = random_answer(start, seed, ByteTokenizer.EOS_ID, most=120)
        if gate.may_end:
            text = bytes(token_ids).decode().strip('"')
            assert checker.conforms(text, name), text
            num_texts += 1
    assert num_texts > 20
