"""The native runtime's quality on both real models: no worse than llama.cpp's kernels on the same text."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrum.bench.perplexity_report import report_perplexity
from ferrum.core.kv_dtype import KvDtype
from ferrum.weights.open_model import ResolvedModel

pytestmark = [pytest.mark.models, pytest.mark.slow]
LICENCE = Path(__file__).parents[2] / "LICENSE"


@pytest.mark.parametrize(
    ("fixture", "perplexity", "kv_dtype", "most_divergence"),
    [
        ("smollm2_path", 15.91, KvDtype.F16, 0.0035),
        ("smollm2_path", 15.91, KvDtype.INT8, 0.0052),
        ("gemma3_path", 10.11, KvDtype.F16, 0.0052),
        ("gemma3_path", 10.11, KvDtype.INT8, 0.0100),
    ],
)
def test_native_diverges_little_from_float_and_float_has_the_known_perplexity(
    fixture: str,
    perplexity: float,
    kv_dtype: KvDtype,
    most_divergence: float,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    model = ResolvedModel(fixture, request.getfixturevalue(fixture))
    windows: list[tuple[int, int]] = []
    report = report_perplexity(model, LICENCE, 2, tmp_path, lambda *done: windows.append(done), kv_dtype)
    assert report.perplexity_float == pytest.approx(perplexity, abs=0.01)
    assert 0 < report.kl_mean <= most_divergence
    most_shift = 0.01 if kv_dtype is KvDtype.F16 else 0.02  # as measured, with room
    assert report.perplexity_native == pytest.approx(report.perplexity_float, rel=most_shift)
    assert windows[-1] == (4, 4)
    assert f"kv={kv_dtype} " in report.numerics_id
    assert report.tokens_scored == 4 * 255
