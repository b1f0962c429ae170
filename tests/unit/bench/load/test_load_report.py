"""Figures of a load counted by hand, and its page: whole, self-contained, and safe to open."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from ferrum.bench.load.answer_record import AnswerRecord
from ferrum.bench.load.load_page import load_page
from ferrum.bench.load.load_report import ClosedLoop, LoadReport, PoissonRate, ServeLoad
from ferrum.bench.load.load_shape import LoadShape
from ferrum.bench.load.load_summary import summarise
from ferrum.bench.load.svg_plot import Axis
from ferrum.bench.machine import Machine

VOID = {"meta", "line", "rect", "polyline", "br"}


def answer(sent: float, texts: list[float], **fields: object) -> AnswerRecord:
    return AnswerRecord(sent, ended_at=texts[-1] if texts else sent + 1, text_times=texts, **fields)


RECORDS = [
    answer(10.0, [10.5, 10.6, 10.8], prompt_tokens=7, completion_tokens=3),
    answer(10.0, [11.0, 11.1, 11.2], prompt_tokens=9),
    answer(11.0, [11.5, 12.0], completion_tokens=2),
    answer(11.0, [], error="status 429: queue is full: 512 requests wait"),
    answer(11.5, [], error="status 429: queue is full: 511 requests wait"),
    answer(11.5, [12.0, 19.0], error="answer cut off"),
]


def report(records: list[AnswerRecord], model: str = "m") -> LoadReport:
    load = ServeLoad("http://h:1/v1", model, LoadShape(len(records), 10, 3, seed=5), ClosedLoop(2))
    machine = Machine("Fast CPU", 2, None, None, "Linux")
    return LoadReport(load, summarise(records, 3), tuple(records), 10.0, 0.05, machine, None)


def test_complete_answers_are_counted_and_failures_are_named() -> None:
    summary = summarise(RECORDS, 3)
    assert (summary.num_requests, summary.num_complete, summary.num_off_length) == (6, 3, 1)
    assert summary.errors == {"status 429: queue is full: N requests wait": 2, "answer cut off": 1}
    assert summary.duration_s == 9.0
    assert summary.output_tokens == 3 + 3 + 2
    assert summary.prompt_tokens == 16
    assert summary.requests_per_second == pytest.approx(3 / 9)
    assert summary.output_tokens_per_second == pytest.approx(8 / 9)
    assert summary.first_token_ms is not None
    assert summary.first_token_ms.p50 == pytest.approx(500.0)
    assert summary.first_token_ms.largest == pytest.approx(1000.0)
    # The gap of seven seconds belongs to an answer that failed.
    assert summary.gap_ms is not None
    assert summary.gap_ms.count == 5
    assert summary.gap_ms.largest == pytest.approx(500.0)


def test_a_load_without_any_answer_has_no_times() -> None:
    figures = summarise(RECORDS[3:5], 3).as_json()
    assert figures["first_token_ms"] is None
    assert figures["largest_gap_ms"] is None
    assert figures["requests_per_second"] == 0.0


def test_the_json_says_what_was_asked_and_what_came() -> None:
    figures = report(RECORDS).as_json()
    assert figures["concurrency"] == 2
    assert figures["rate"] is None
    assert figures["num_errors"] == 3
    assert figures["seed"] == 5
    assert set(figures) >= {
        "first_token_ms",
        "gap_ms",
        "largest_gap_ms",
        "errors",
        "client_cpu_share",
        "commit",
    }
    poisson = report(RECORDS)
    poisson = replace(poisson, load=replace(poisson.load, pace=PoissonRate(2.5)))
    assert (poisson.as_json()["rate"], poisson.as_json()["concurrency"]) == (2.5, None)


class Nesting(HTMLParser):
    """Checks that elements close in order and collects what a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in VOID:
            self.open.append(tag)
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read_page(text: str) -> Nesting:
    nesting = Nesting()
    nesting.feed(text)
    nesting.close()
    assert not nesting.open
    return nesting


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    text = load_page(report(RECORDS))
    nesting = read_page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert nesting.counts["svg"] == 4
    # Two rectangles for each complete answer.
    assert nesting.counts["rect"] == 6
    assert not nesting.fetched
    assert "url(" not in text
    assert "@import" not in text
    assert "<script" not in text
    for number in re.findall(r'(?:points|x|y|width|height)="([^"]*)"', text):
        assert "nan" not in number
        assert "inf" not in number


def test_a_page_of_failures_has_no_plots_but_its_errors() -> None:
    text = load_page(report(RECORDS[3:5]))
    assert "svg" not in read_page(text).counts
    assert "queue is full" in text


def test_names_from_outside_are_only_text() -> None:
    text = load_page(report(RECORDS, model="<script>alert(1)</script>"))
    assert "script" not in read_page(text).counts
    assert "&lt;script&gt;" in text


def test_a_single_token_has_no_gap_to_plot() -> None:
    text = load_page(report([answer(10.0, [10.5], completion_tokens=1)]))
    assert read_page(text).counts["svg"] == 3


@pytest.mark.parametrize("largest", [0.0, 0.003, 1.0, 7.0, 99.0, 100.0, 12345.0])
def test_axes_end_at_a_round_number_and_have_few_ticks(largest: float) -> None:
    axis = Axis("x", largest)
    assert axis.end >= largest - 1e-9
    assert axis.end <= max(1.0, 1.5 * largest)
    assert 2 <= len(axis.ticks) <= 12
