"""Engines in interpreters of their own: found, asked over pipes, and measured from outside."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ferrum.bench.compare_phases import ComparePhase
from ferrum.bench.load.answer_record import AnswerRecord
from ferrum.bench.peers.best_configuration import BestConfiguration
from ferrum.bench.peers.ik_llama import SCRIPT as IK_LLAMA_SCRIPT
from ferrum.bench.peers.ik_llama import open_ik_llama
from ferrum.bench.peers.mistral_rs import SCRIPT as MISTRAL_SCRIPT
from ferrum.bench.peers.openvino_genai import SCRIPT as OPENVINO_SCRIPT
from ferrum.bench.peers.openvino_genai import open_openvino_genai
from ferrum.bench.peers.peer import PeerFailed, PeerSetup, PeerUnavailable, PhaseUnsupported
from ferrum.bench.peers.peer_table import PEERS, opener_of
from ferrum.bench.peers.python_peer import Installation, ScriptedPeer, find_installation
from ferrum.bench.peers.together import rate_together
from ferrum.bench.peers.vllm_cpu import fastest_dtype, open_vllm_cpu, vllm_command, vllm_variables
from ferrum.bench.peers.xllamacpp import SERVER_SCRIPT
from ferrum.bench.phases import PhaseKind
from ferrum.core.errors import UnknownComponent

PREFILL = ComparePhase("p", PhaseKind.PREFILL, 20, 1)
DECODE = ComparePhase("d", PhaseKind.DECODE, 6, 9)
SETUP = PeerSetup(Path("m.gguf"), 2, 100)

# Prefills at 10 tokens a second, decodes at 4.
ENGINE = """
import json, sys
settings = json.loads(sys.argv[1])
assert settings == {"model": "m.gguf", "threads": 2}, settings
print("a banner that is no answer")
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    count = question["output_tokens"]
    first, rest = len(question["prompt"]) / 10, (count - 1) / 4
    answer = {"first_token_s": first, "rest_s": rest, "output_tokens": count}
    print(json.dumps(answer), flush=True)
"""


def peer_of(script: str) -> ScriptedPeer:
    return ScriptedPeer("engine", Installation(sys.executable, "1"), script, SETUP)


def test_a_scripted_engine_is_measured_over_its_pipes() -> None:
    peer = peer_of(ENGINE)
    try:
        assert peer.measure(PREFILL) == pytest.approx(10.0)
        assert peer.measure(DECODE) == pytest.approx(4.0)
        with pytest.raises(PhaseUnsupported):
            peer.measure(ComparePhase("b", PhaseKind.DECODE, 6, 9, num_sequences=2))
    finally:
        peer.close()
        peer.close()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys; sys.exit(1)", "has ended"),
        ('print(\'{"error": "bad file"}\')', "bad file"),
    ],
)
def test_an_engine_that_cannot_load_the_model_has_failed(script: str, words: str) -> None:
    with pytest.raises(PeerFailed, match=words):
        peer_of(script)


def test_an_engine_that_breaks_or_stops_early_has_failed() -> None:
    short = ENGINE.replace('"output_tokens": count}', '"output_tokens": count - 1}')
    broken = ENGINE.replace("answer = {", 'answer = {"error": "out of memory", ')
    ending = ENGINE.replace("    count = ", "    sys.exit()\n    count = ")
    for script, words in ((short, "gave 8 tokens, not 9"), (broken, "out of memory"), (ending, "has ended")):
        peer = peer_of(script)
        with pytest.raises(PeerFailed, match=words):
            peer.measure(DECODE)
        peer.close()


def test_packages_are_looked_for_where_they_are_said_to_be() -> None:
    assert find_installation("pytest", None) == Installation(sys.executable, pytest.__version__)
    # The CPU build of an engine may be a package of another name; the first that is there counts.
    assert find_installation("tests", None, ("no-such-package", "pytest")).version == pytest.__version__
    with pytest.raises(PeerUnavailable, match=r"no-such-package is not installed .* no-such-package=/path"):
        find_installation("no-such-package", None)
    with pytest.raises(PeerUnavailable, match=r"one or two is not installed .* give peer=/path"):
        find_installation("peer", sys.executable, ("one", "two"))
    with pytest.raises(PeerUnavailable, match="cannot be started"):
        find_installation("pytest", "/no/such/python")
    with pytest.raises(PeerUnavailable, match="is no Python"):
        find_installation("pytest", "/bin/false")


def test_peers_that_are_not_installed_say_what_to_give() -> None:
    with pytest.raises(PeerUnavailable, match="give openvino-genai=/path/to/python"):
        open_openvino_genai(SETUP)
    with pytest.raises(PeerUnavailable, match=r"ik-llama-cpp-python is not installed .* give ik-llama=/path"):
        open_ik_llama(SETUP)
    with pytest.raises(PeerUnavailable, match="vLLM reads safetensors"):
        open_vllm_cpu(SETUP)
    with pytest.raises(PeerUnavailable, match="vllm-cpu or vllm is not installed"):
        open_vllm_cpu(replace(SETUP, program=f"{sys.executable}:/"))


def test_vllm_is_not_flattered_by_its_prefix_cache() -> None:
    assert "--no-enable-prefix-caching" in vllm_command("python", "/model", "float32", 1)


def test_vllm_gets_all_processors_and_the_type_they_multiply() -> None:
    assert vllm_variables([0, 3]) == {"VLLM_CPU_OMP_THREADS_BIND": "0,3"}
    assert fastest_dtype({"avx2", "avx512_bf16"}) == "bfloat16"
    assert fastest_dtype({"avx2", "avx512f"}) == fastest_dtype(()) == "float32"


def test_a_scripted_engine_gets_its_settings_and_variables() -> None:
    script = """
import json, os, sys
settings = json.loads(sys.argv[1])
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    print(json.dumps({"error": f"{settings['mode']} {os.environ['POOL']}"}), flush=True)
"""
    installation = Installation(sys.executable, "1")
    peer = ScriptedPeer("engine", installation, script, SETUP, {"mode": "fast"}, {"POOL": "2"})
    with pytest.raises(PeerFailed, match=r"^fast 2$"):
        peer.measure(PREFILL)
    peer.close()


class FixedRates:
    """Measures the rate of each phase; an exception is raised."""

    name = "engine"
    version = "1"

    def __init__(self, rates: dict[str, float | Exception]) -> None:
        self._rates = rates
        self.is_closed = False

    def measure(self, phase: ComparePhase) -> float:
        rate = self._rates[phase.name]
        if isinstance(rate, Exception):
            raise rate
        return rate

    def close(self) -> None:
        self.is_closed = True


def test_each_phase_is_measured_in_its_fastest_configuration() -> None:
    wide = FixedRates({"p": 9.0, "d": 2.0})
    narrow = FixedRates({"p": 5.0, "d": 3.0})
    peer = BestConfiguration("engine", "1", {"wide": wide, "narrow": narrow})
    assert (peer.measure(PREFILL), peer.measure(DECODE), peer.measure(PREFILL)) == (9.0, 3.0, 9.0)
    assert peer.version == "1, p: wide, d: narrow"
    peer.close()
    assert wide.is_closed
    assert narrow.is_closed


def test_a_configuration_that_breaks_is_left_out() -> None:
    broken = FixedRates({"p": PeerFailed("assertion"), "d": PeerFailed("assertion")})
    sound = FixedRates({"p": 5.0, "d": PeerFailed("no decode")})
    peer = BestConfiguration("engine", "1", {"broken": broken, "sound": sound})
    assert peer.measure(PREFILL) == 5.0
    with pytest.raises(PeerFailed, match="no decode"):
        peer.measure(DECODE)


@pytest.mark.parametrize("script", [IK_LLAMA_SCRIPT, MISTRAL_SCRIPT, OPENVINO_SCRIPT, SERVER_SCRIPT])
def test_scripts_for_other_interpreters_are_python(script: str) -> None:
    compile(script, "script", "exec")


def test_an_unknown_peer_is_refused_with_the_known_ones() -> None:
    assert set(PEERS) >= {"llama-server", "xllamacpp", "openvino-genai", "mistralrs", "vllm"}
    with pytest.raises(UnknownComponent, match="no peer named 'lama'"):
        opener_of("lama")


def answer(first: float, last: float, num_tokens: int) -> AnswerRecord:
    return AnswerRecord(0.0, last, [first, (first + last) / 2, last], completion_tokens=num_tokens)


def test_answers_together_advance_at_the_sum_of_their_rates() -> None:
    # 10 tokens a second and 20 tokens a second, overlapping from 2 to 6.
    assert rate_together([answer(1.0, 6.0, 51), answer(2.0, 7.0, 101)]) == pytest.approx(30.0)


def test_answers_one_after_the_other_are_not_together() -> None:
    with pytest.raises(PeerFailed, match="one after the other"):
        rate_together([answer(0.0, 1.0, 5), answer(2.0, 3.0, 5)])
    with pytest.raises(PeerFailed, match="without text"):
        rate_together([answer(0.0, 1.0, 5), AnswerRecord(0.0)])
