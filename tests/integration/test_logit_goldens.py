"""The interpreter's float logits of the real models against stored ones of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ferrum.models.architectures import build_plan
from ferrum.runtimes.numpy_interpreter import NumpyInterpreter
from ferrum.runtimes.protocol import LogitsDetail, StepBatch
from ferrum.weights.checkpoint import open_checkpoint

pytestmark = pytest.mark.models
GOLDEN = Path(__file__).parents[1] / "golden" / "logits"


@pytest.mark.parametrize(
    ("name", "fixture"), [("smollm2-135m", "smollm2_path"), ("gemma3-270m", "gemma3_path")]
)
def test_float_logits_are_transformers(name: str, fixture: str, request: pytest.FixtureRequest) -> None:
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    checkpoint = open_checkpoint(request.getfixturevalue(fixture))
    rows = np.arange(len(golden["token_ids"]), dtype=np.int32)
    batch = StepBatch(
        token_ids=np.array(golden["token_ids"], np.int32),
        positions=rows,
        sequence_starts=np.array([0, len(rows)], np.int32),
        block_tables=np.array([[1, 0]], np.int32),
        output_rows=rows,
        sampling=None,
    )
    interpreter = NumpyInterpreter(build_plan(checkpoint), checkpoint.tensors, num_blocks=2)
    logits = interpreter.run(batch, LogitsDetail.FULL).logits
    assert logits.argmax(axis=-1).tolist() == golden["most_likely"]
    kept = logits[np.ix_(golden["positions"], golden["columns"])]
    np.testing.assert_allclose(kept, golden["logits"], rtol=0, atol=1e-3 * golden["deviation"])
