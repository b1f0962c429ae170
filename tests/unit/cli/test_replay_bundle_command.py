"""``ferrum replay-bundle`` on a tiny model and the native runtime, as a person and as a program read it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ferrum.cli.main import app
from ferrum.cli.replay_session import replay_session
from ferrum.core.config import EngineConfig
from ferrum.core.errors import UnusableBundle
from ferrum.core.evidence_config import BundleOccasion, EvidenceConfig
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.sampling_params import SamplingParams
from ferrum.llm import LLM
from tiny_chat_model import write_tiny_chat_model


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRUM_HOME", str(tmp_path / "home"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_chat_model(tmp_path / "tiny.gguf")


def record(model: Path, folder: Path, **settings: Any) -> Path:
    """The bundle of one of three requests that ran together on three threads."""
    evidence = EvidenceConfig(bundle_dir=str(folder), bundle_occasion=BundleOccasion.ALL)
    config = EngineConfig(evidence=evidence, logit_digests=True, **settings)
    with LLM(model, threads=3, config=config) as llm:
        llm.generate(["one", "two and", "three"], SamplingParams(max_tokens=12, seed=None, ignore_eos=True))
    return sorted(folder.iterdir())[1]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["replay-bundle", *arguments])
    return result.exit_code, result.stdout


def change_output(bundle: Path, index: int) -> None:
    """Another token at ``index``, with the hash that belongs to it."""
    from ferrum.core.token_trace import hash_token_ids

    path = bundle / "output_token_ids.json"
    content = json.loads(path.read_text())
    content["token_ids"][index] ^= 1
    content["logit_digests"] = None
    path.write_text(json.dumps({**content, "sha256": hash_token_ids(content["token_ids"])}))


def test_a_replay_alone_on_one_thread_gives_the_bits_of_the_batch(model: Path, tmp_path: Path) -> None:
    bundle = record(model, tmp_path / "bundles", kv_dtype=KvDtype.INT8)
    status, text = run(str(bundle), "--threads", "1")
    assert status == 0
    assert "the same (12 tokens and 12 digests of logits compared)" in text


def test_a_difference_is_told_in_text_in_json_and_by_the_status(model: Path, tmp_path: Path) -> None:
    bundle, out = record(model, tmp_path / "bundles"), tmp_path / "report.json"
    change_output(bundle, 7)
    status, text = run(str(bundle), "--out", str(out))
    assert status == 1
    assert "DIFFERENT" in text
    assert "first difference: token 7:" in text
    status, printed = run(str(bundle), "--json")
    assert status == 1
    assert json.loads(printed) == json.loads(out.read_text())
    assert json.loads(printed)["difference"]["index"] == 7


def test_a_model_that_moved_is_named_with_an_option(model: Path, tmp_path: Path) -> None:
    bundle = record(model, tmp_path / "bundles")
    moved = Path(shutil.move(model, tmp_path / "moved.gguf"))
    assert run(str(bundle), "--model", str(moved))[0] == 0


def test_other_weights_are_refused_before_anything_is_compared(model: Path, tmp_path: Path) -> None:
    bundle = record(model, tmp_path / "bundles")
    content = bytearray(model.read_bytes())
    content[-4] ^= 1  # The last bit of the last weight.
    other = tmp_path / "other.gguf"
    other.write_bytes(content)
    with pytest.raises(UnusableBundle, match="another model: weights_digest"):
        replay_session(bundle, str(other), None)


def test_a_configuration_nobody_knows_is_refused_by_name(model: Path, tmp_path: Path) -> None:
    bundle = record(model, tmp_path / "bundles")
    (bundle / "runtime_effective_config.json").write_text('{"max_model_length": 5}')
    with pytest.raises(UnusableBundle, match="max_model_length: no such setting") as caught:
        replay_session(bundle, None, None)
    assert caught.value.file == "runtime_effective_config.json"


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableBundle, match=r"request\.json cannot be read"):
        replay_session(tmp_path, None, None)
