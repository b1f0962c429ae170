"""A load's report as one HTML page that needs nothing else: figures, and plots as inline SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from ferrum.bench.load.answer_record import AnswerRecord
from ferrum.bench.load.load_report import LoadReport
from ferrum.bench.load.svg_plot import Axis, Bar, Series, bar_plot, line_plot
from ferrum.bench.statistics import Percentiles

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2937; }
body { max-width: 760px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: .15em 1.2em .15em 0; text-align: right; }
td:first-child, th:first-child { text-align: left; }
svg { max-width: 100%; height: auto; } svg text { font-size: 12px; fill: #4b5563; }
.grid { stroke: #e5e7eb; } .errors { color: #b91c1c; }
"""


def load_page(report: LoadReport) -> str:
    """The whole page."""
    load, summary = report.load, report.summary
    title = f"{load.model}: {summary.num_requests} requests, {load.pace}"
    sections = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_setting(report))}</p>",
        _figures(report),
        _errors(report),
    ]
    complete = [record for record in report.records if record.error is None and record.text_times]
    if complete:
        sections += _plots(report, complete)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(sections)}</body></html>\n"
    )


def _setting(report: LoadReport) -> str:
    shape = report.load.shape
    shared = (
        f", after one of {shape.num_prefixes} shared beginnings of {shape.shared_prefix_words}"
        if shape.shared_prefix_words
        else ""
    )
    return (
        f"Prompts of {shape.prompt_words} words{shared}; answers of {shape.output_tokens} tokens; "
        f"seed {shape.seed}. Client on {report.machine.cpu_model}, "
        f"{100 * report.client_cpu_share:.1f} % of a core."
    )


def _figures(report: LoadReport) -> str:
    summary = report.summary
    rates = (
        ("requests per second", summary.requests_per_second),
        ("output tokens per second", summary.output_tokens_per_second),
        ("prompt tokens per second", summary.prompt_tokens_per_second),
        ("seconds in all", summary.duration_s),
    )
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{value:,.2f}</td></tr>" for name, value in rates)
    times = (
        ("time to first token", summary.first_token_ms),
        ("gap between tokens", summary.gap_ms),
        ("whole answer", summary.answer_ms),
    )
    time_rows = "".join(_time_row(name, percentiles) for name, percentiles in times if percentiles)
    head = "<tr><th>milliseconds</th><th>p50</th><th>p90</th><th>p99</th><th>largest</th></tr>"
    return f"<table>{rows}</table><h2>Times</h2><table>{head}{time_rows}</table>"


def _time_row(name: str, percentiles: Percentiles) -> str:
    values = (percentiles.p50, percentiles.p90, percentiles.p99, percentiles.largest)
    cells = "".join(f"<td>{value:,.1f}</td>" for value in values)
    return f"<tr><td>{escape(name)}</td>{cells}</tr>"


def _errors(report: LoadReport) -> str:
    if not report.summary.errors:
        return ""
    rows = "".join(
        f"<tr><td>{escape(kind)}</td><td>{count}</td></tr>" for kind, count in report.summary.errors.items()
    )
    return f'<h2>Errors</h2><table class="errors">{rows}</table>'


def _plots(report: LoadReport, complete: Sequence[AnswerRecord]) -> list[str]:
    first_ms = [(record.text_times[0] - record.sent_at) * 1e3 for record in complete]
    gaps_ms = [gap * 1e3 for record in complete for gap in record.gaps_s]
    end = max(record.ended_at for record in report.records) - report.started_at
    time_axis = Axis("seconds since the start", end)
    plots = [
        "<h2>Time to first token: share of requests that waited at most so long</h2>",
        _distribution("milliseconds", first_ms),
    ]
    if gaps_ms:
        plots += [
            "<h2>Gap between tokens: share of gaps that are at most so long</h2>",
            _distribution("milliseconds", gaps_ms),
        ]
    bars = [
        Bar(*(moment - report.started_at for moment in (each.sent_at, each.text_times[0], each.ended_at)))
        for each in complete
    ]
    plots += [
        "<h2>Pieces of text in each second</h2>",
        _text_rate(report, complete, time_axis),
        "<h2>Requests: waiting, then answering</h2>",
        bar_plot(time_axis, "request", bars),
    ]
    return plots


def _distribution(label: str, values: Sequence[float]) -> str:
    ordered = sorted(values)
    points = [(value, 100 * (index + 1) / len(ordered)) for index, value in enumerate(ordered)]
    return line_plot(Axis(label, ordered[-1]), Axis("per cent", 100.0), [Series("", [(0.0, 0.0), *points])])


def _text_rate(report: LoadReport, complete: Sequence[AnswerRecord], time_axis: Axis) -> str:
    counts = Counter(int(moment - report.started_at) for each in complete for moment in each.text_times)
    points = [(second + 0.5, float(counts[second])) for second in range(int(time_axis.largest) + 1)]
    points = [(min(moment, time_axis.end), count) for moment, count in points]
    return line_plot(time_axis, Axis("pieces of text", max(counts.values())), [Series("", points)])
