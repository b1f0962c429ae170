"""What a replay bundle holds, what it leaves out, and what a replay finds."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded_engine import RecordedEngine, ask

from ferrum.core.completion_boundary import AfterDelimiterAndPayload, Envelope
from ferrum.core.errors import FerrumError, InternalError, UnusableBundle
from ferrum.core.events import EngineFailed
from ferrum.core.evidence_config import BundleOccasion, BundleTokenIds, Entrypoint, EvidenceConfig
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult, Usage
from ferrum.core.step import StepPlan
from ferrum.evidence import bundle_files as files
from ferrum.evidence.backend_selection import BackendSelection
from ferrum.evidence.bundle_recorder import BundleRecorder
from ferrum.evidence.replay import Difference, ReplayReport, replay
from ferrum.evidence.replay_bundle import read_bundle
from ferrum.testing.scripted_executor import ScriptedExecutor

PROMPT = "the password is swordfish"


def _fails(plan: StepPlan) -> None:
    raise ValueError("a broken kernel")


def _fails_after(num_tokens: int) -> Callable[[StepPlan], None]:
    def check(plan: StepPlan) -> None:
        if plan.parts[0].start_position >= len(PROMPT) + num_tokens:
            raise ValueError("a broken kernel")

    return check


def _record(
    folder: Path, executor: ScriptedExecutor | None = None, *requests: InferenceRequest, **evidence: Any
) -> list[Path]:
    """Bundles of these requests, which may fail."""
    config = EvidenceConfig(**{"bundle_dir": str(folder), "bundle_occasion": BundleOccasion.ALL, **evidence})
    recorded = RecordedEngine(config, executor or ScriptedExecutor())
    try:
        recorded.answer(*(requests or (ask("a", PROMPT),)))
    except FerrumError:
        pass
    finally:
        recorded.engine.close(0.0)
    return sorted(path for path in folder.iterdir() if path.is_dir())


def _content(bundle: Path, name: str) -> Any:
    return json.loads((bundle / name).read_text())


def _replay(bundle: Path, executor: ScriptedExecutor | None = None) -> ReplayReport:
    engine = RecordedEngine(EvidenceConfig(), executor or ScriptedExecutor()).engine
    try:
        return replay(read_bundle(bundle), lambda request: engine.generate([request])[0])
    finally:
        engine.close(0.0)


def test_rules_of_sampling_are_kept_and_asked_again(tmp_path: Path) -> None:
    asked = {
        "repetition_penalty": 1.25,
        "repeat_last_n": 9,
        "logit_bias": {97: -5.0},
        "allowed_token_ids": tuple(range(97, 123)),
        "dry_multiplier": 0.5,
        "dry_sequence_breakers": ("x",),
        "mirostat": 2,
        "min_tokens": 1,
    }
    (bundle,) = _record(tmp_path, None, ask("a", PROMPT, **asked))
    kept = read_bundle(bundle).sampling
    assert {name: getattr(kept, name) for name in asked} == asked
    assert _replay(bundle).is_same


def test_what_bad_words_prevented_cannot_be_replayed(tmp_path: Path) -> None:
    (bundle,) = _record(tmp_path, None, ask("a", PROMPT, bad_words=("swordfish",)))
    assert "swordfish" not in (bundle / files.SAMPLING).read_text()
    with pytest.raises(UnusableBundle, match="bad_words: their texts are not kept"):
        read_bundle(bundle)


def test_a_bundle_has_every_file_and_no_text(tmp_path: Path) -> None:
    (bundle,) = _record(tmp_path, None, ask("a", PROMPT, stop=("###", "swordfish")))
    assert {path.name for path in bundle.iterdir()} == set(files.REQUIRED)
    whole = "".join(path.read_text() for path in bundle.iterdir())
    assert (bundle / files.OUTPUT_TEXT).read_text().startswith("[redacted: 8 characters, sha256:")
    assert "swordfish" not in whole
    assert "###" not in whole
    assert _content(bundle, files.REQUEST)["sanitized"] is True
    assert _content(bundle, files.REQUEST)["prompt"]["text"]["num_characters"] == len(PROMPT)
    assert _content(bundle, files.COMMAND)["argv"] == ["ferrum", "replay-bundle", str(bundle)]
    assert bundle.stat().st_mode & 0o077 == 0


def test_a_replay_gives_the_same_tokens_and_digests(tmp_path: Path) -> None:
    (bundle,) = _record(tmp_path, None, ask("a", PROMPT, temperature=1.0, seed=None, max_tokens=20))
    report = _replay(bundle)
    assert report.is_same
    assert (report.num_compared_tokens, report.num_compared_digests) == (20, 20)
    assert (report.recorded_end, report.replayed_end) == (FinishReason.LENGTH, FinishReason.LENGTH)


def test_the_first_token_that_differs_is_named(tmp_path: Path) -> None:
    (bundle,) = _record(tmp_path)
    recorded = read_bundle(bundle)

    def other(request_id: str, history: tuple[int, ...], sampling: Any) -> int:
        index = len(history) - len(PROMPT)
        assert recorded.output_ids is not None
        return recorded.output_ids[index] if index < 5 else 0

    report = _replay(bundle, ScriptedExecutor(choose=other))
    assert not report.is_same
    assert recorded.output_ids is not None
    assert report.difference == Difference("token", 5, recorded.output_ids[5], 0)


def _result(**changes: Any) -> Callable[[InferenceRequest], InferenceResult]:
    whole = InferenceResult("a", "", (1, 2, 3), FinishReason.LENGTH, Usage(1, 3), 1, (7, 8, 9))
    return lambda request: replace(whole, **changes)


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({}, None),
        ({"token_ids": (1, 2)}, Difference("token", 2, 3, None)),
        ({"token_ids": (1, 2, 3, 4)}, Difference("token", 3, None, 4)),
        ({"logit_digests": (7, 0, 9)}, Difference("logits", 1, 8, 0)),
        ({"logit_digests": (7, 8, 0), "token_ids": (1, 0, 3)}, Difference("token", 1, 2, 0)),
        ({"logit_digests": (7, 0, 9), "token_ids": (1, 0, 3)}, Difference("logits", 1, 8, 0)),
        ({"logit_digests": ()}, None),
    ],
)
def test_what_differs_first_is_told(
    tmp_path: Path, changes: dict[str, Any], difference: Difference | None
) -> None:
    (bundle,) = _record(tmp_path)
    recorded = replace(
        read_bundle(bundle),
        output_ids=(1, 2, 3),
        logit_digests=(7, 8, 9),
        finish_reason=FinishReason.LENGTH,
    )
    report = replay(recorded, _result(**changes))
    assert (report.is_same, report.difference) == (difference is None, difference)


def test_another_end_with_the_same_tokens_is_different(tmp_path: Path) -> None:
    (bundle,) = _record(tmp_path)
    recorded = replace(read_bundle(bundle), output_ids=(1, 2, 3), logit_digests=())
    report = replay(recorded, _result(finish_reason=FinishReason.EOS))
    assert (report.is_same, report.difference) == (False, None)


def test_only_failures_leave_bundles_unless_all_are_asked_for(tmp_path: Path) -> None:
    assert _record(tmp_path, bundle_occasion=BundleOccasion.FAILED) == []
    (bundle,) = _record(tmp_path, ScriptedExecutor(before_step=_fails), bundle_occasion=BundleOccasion.FAILED)
    assert _content(bundle, files.REQUEST)["finish_reason"] == "error"


def test_a_failure_leaves_its_diagnostics(tmp_path: Path) -> None:
    (bundle,) = _record(tmp_path, ScriptedExecutor(before_step=_fails_after(3)))
    diagnostics = _content(bundle, files.DIAGNOSTICS)
    assert diagnostics["error"]["type"] == "InternalError"
    assert diagnostics["causes"][0]["type"] == "ValueError"
    assert diagnostics["causes"][0]["message"] == "a broken kernel"
    assert any(place.endswith(" check") for place in diagnostics["causes"][0]["raised_in"])
    assert diagnostics["completion_tokens"] == 4
    assert len(diagnostics["recent_iterations"]) == 4
    assert diagnostics["recent_iterations"][-1]["requests"] == {"a": 1}
    assert diagnostics["recent_iterations"][-1]["snapshot"]["num_decoding"] == 1


def test_a_failed_request_is_compared_as_far_as_it_came(tmp_path: Path) -> None:
    (bundle,) = _record(tmp_path, ScriptedExecutor(before_step=_fails_after(3)))
    healed = _replay(bundle)
    assert (healed.is_same, healed.num_compared_tokens) == (True, 4)
    assert any("did not fail in the replay" in note for note in healed.notes)
    again = _replay(bundle, ScriptedExecutor(before_step=_fails))
    assert again.is_same
    assert again.failure is not None
    assert "a broken kernel" in again.failure


def test_a_replay_that_fails_though_the_record_did_not_is_different(tmp_path: Path) -> None:
    (bundle,) = _record(tmp_path)
    report = _replay(bundle, ScriptedExecutor(before_step=_fails))
    assert not report.is_same
    assert report.failure is not None


def test_an_answer_that_ended_at_a_stop_string_is_compared_without_it(tmp_path: Path) -> None:
    (whole,) = _record(tmp_path / "whole", None, ask("a", PROMPT, max_tokens=20))
    output_ids = read_bundle(whole).output_ids
    assert output_ids is not None
    stop = bytes(output_ids[6:8]).decode()
    (bundle,) = _record(tmp_path / "stopped", None, ask("a", PROMPT, max_tokens=20, stop=(stop,)))
    recorded = read_bundle(bundle)
    assert recorded.finish_reason is FinishReason.STOP
    assert recorded.num_stops == 1
    report = _replay(bundle)
    assert report.is_same
    assert report.num_compared_tokens == len(recorded.output_ids or ())
    assert any("stop strings, which are redacted" in note for note in report.notes)


def test_stops_and_gates_are_asked_for_again(tmp_path: Path) -> None:
    boundary = AfterDelimiterAndPayload("#", Envelope("<", ">", 2))
    wishes = {
        "stop_token_ids": (250,),
        "completion_boundary": boundary,
        "forbidden_first_texts": ("\0",),
        "control_texts": ("<bos>",),
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
    }
    (bundle,) = _record(tmp_path, None, ask("a", PROMPT, **wishes))
    again = read_bundle(bundle).sampling
    assert {name: getattr(again, name) for name in wishes} == wishes
    assert _replay(bundle).is_same


def test_hashed_ids_cannot_be_replayed_and_say_so(tmp_path: Path) -> None:
    (bundle,) = _record(tmp_path, bundle_token_ids=BundleTokenIds.HASHED)
    assert _content(bundle, files.PROMPT_IDS)["token_ids"] is None
    assert _content(bundle, files.PROMPT_IDS)["token_count"] == len(PROMPT)
    with pytest.raises(UnusableBundle, match="hash instead of token ids") as caught:
        _replay(bundle)
    assert caught.value.file == files.PROMPT_IDS


def test_a_server_leaves_a_body_that_asks_the_same(tmp_path: Path) -> None:
    (bundle,) = _record(tmp_path, entrypoint=Entrypoint.SERVE)
    body = _content(bundle, files.REPLAY_BODY)
    assert body["prompt"] == list(PROMPT.encode())
    assert (body["seed"], body["max_tokens"]) == (1, 8)
    hashed = _record(tmp_path / "hashed", entrypoint=Entrypoint.SERVE, bundle_token_ids=BundleTokenIds.HASHED)
    assert not (hashed[0] / files.REPLAY_BODY).exists()


def test_no_more_bundles_than_the_limit_are_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        bundles = _record(tmp_path, None, *(ask(f"r{number}", PROMPT) for number in range(5)), bundle_limit=2)
    assert len(bundles) == 2
    assert caplog.text.count("no more will be") == 1


@pytest.mark.parametrize("request_id", ["../../outside", "a/b", ".hidden", "x" * 500, "ü\n\x00?", "CON"])
def test_a_request_id_cannot_lead_out_of_the_folder(tmp_path: Path, request_id: str) -> None:
    folder = tmp_path / "deep" / "bundles"
    (bundle,) = _record(folder, None, ask(request_id, PROMPT))
    assert bundle.parent == folder
    assert list(tmp_path.iterdir()) == [tmp_path / "deep"]
    assert read_bundle(bundle).request_id == request_id


def test_a_folder_that_goes_away_disturbs_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "bundles"
    recorded = RecordedEngine(
        EvidenceConfig(bundle_dir=str(folder), bundle_occasion=BundleOccasion.ALL), ScriptedExecutor()
    )
    folder.rmdir()
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            recorded.answer(ask(f"r{number}"))
        recorded.engine.close(0.0)
    assert len(caplog.records) == 1


def test_a_failed_engine_leaves_its_diagnostics_beside_the_bundles(tmp_path: Path) -> None:
    context = files.BundleContext(
        Entrypoint.SERVE, BundleTokenIds.KEPT, BackendSelection(None, "scripted", "scripted"), {}
    )
    recorder = BundleRecorder(str(tmp_path), context)
    recorder.on(EngineFailed("no step for 300 s", 7))
    recorder.close()
    (path,) = tmp_path.iterdir()
    diagnostics = json.loads(path.read_text())
    assert path.name.endswith(files.ENGINE_DIAGNOSTICS)
    assert (diagnostics["reason"], diagnostics["num_requests"]) == ("no step for 300 s", 7)
    assert any(name.startswith("MainThread/") for name in diagnostics["threads"])


def _damage(bundle: Path, name: str, **changes: Any) -> None:
    content = {**_content(bundle, name), **changes}
    (bundle / name).write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("name", "changes", "problem"),
    [
        (files.REQUEST, {"schema_version": 2}, "schema_version must be 1"),
        (files.REQUEST, {"sanitized": False}, "sanitized must be true"),
        (files.REQUEST, {"entrypoint": "web"}, "entrypoint must be one of"),
        (files.REQUEST, {"request_id": 5}, "request_id must be a text"),
        (files.REQUEST, {"finish_reason": "bored"}, "bored"),
        (files.PROMPT_IDS, {"request_id": "b"}, "request_id must be 'a'"),
        (files.PROMPT_IDS, {"token_count": 1}, "token_count is 1, but there are 25"),
        (files.PROMPT_IDS, {"token_ids": [1, -1]}, "must be a list of ids"),
        (files.PROMPT_IDS, {"token_ids": ["1"]}, "must be a list of ids"),
        (files.OUTPUT_IDS, {"sha256": "sha256:00"}, "one of them was changed"),
        (files.OUTPUT_IDS, {"logit_digests": ["x"]}, "invalid literal"),
        (files.SAMPLING, {"temperature": -1}, "temperature: must be between"),
        (files.SAMPLING, {"mirostat": 1}, "mirostat"),
        (files.SAMPLING, {"stop": None}, "NoneType"),
        (files.OUTPUT_SCAN, {"bad_output": None}, "bad_output must be true or false"),
        (files.COMMAND, {"argv": []}, "argv must be a list of texts"),
        (files.COMMAND, {"argv": "ferrum"}, "argv must be a list of texts"),
        (files.BACKEND, {"cluster": 1}, "cluster"),
    ],
)
def test_what_is_wrong_in_a_bundle_is_named_with_its_file(
    tmp_path: Path, name: str, changes: dict[str, Any], problem: str
) -> None:
    (bundle,) = _record(tmp_path)
    _damage(bundle, name, **changes)
    with pytest.raises(UnusableBundle, match=problem) as caught:
        read_bundle(bundle)
    assert (caught.value.path, caught.value.file) == (str(bundle), name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", files.REQUIRED)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (bundle,) = _record(tmp_path)
    (bundle / name).unlink()
    with pytest.raises(UnusableBundle, match=f"{name} cannot be read: No such file"):
        read_bundle(bundle)


@pytest.mark.parametrize("text", ["", "[1]", "nul", "{", "\x00", "[" * 100_000])
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    (bundle,) = _record(tmp_path)
    (bundle / files.BACKEND).write_text(text)
    with pytest.raises(UnusableBundle) as caught:
        read_bundle(bundle)
    assert caught.value.file == files.BACKEND


def test_an_engine_that_refuses_the_request_is_no_replay(tmp_path: Path) -> None:
    (bundle,) = _record(tmp_path)

    def refuse(request: InferenceRequest) -> InferenceResult:
        raise InternalError("no room")

    report = replay(read_bundle(bundle), refuse)
    assert (report.is_same, report.failure) == (False, "no room")
