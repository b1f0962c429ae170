"""OpenVINO GenAI, which reads a GGUF file and runs it in the process of its interpreter."""

from __future__ import annotations

from ferrum.bench.peers.peer import PeerSetup
from ferrum.bench.peers.python_peer import ScriptedPeer, find_installation, require_file

SCRIPT = """
import json, sys
import numpy, openvino, openvino_genai

settings = json.loads(sys.argv[1])
pipeline = openvino_genai.LLMPipeline(
    settings["model"], "CPU", INFERENCE_NUM_THREADS=settings["threads"]
)
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    ids = numpy.array([question["prompt"]], dtype=numpy.int64)
    inputs = openvino_genai.TokenizedInputs(
        openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids))
    )
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = question["output_tokens"]
    config.ignore_eos = True
    config.do_sample = False
    try:
        metrics = pipeline.generate(inputs, config).perf_metrics
        first = metrics.get_ttft().mean / 1e3
        answer = {
            "first_token_s": first,
            "rest_s": metrics.get_generate_duration().mean / 1e3 - first,
            "output_tokens": metrics.get_num_generated_tokens(),
        }
    except Exception as error:
        answer = {"error": repr(error)}
    print(json.dumps(answer), flush=True)
"""


def open_openvino_genai(setup: PeerSetup) -> ScriptedPeer:
    """Raises PeerUnavailable when it is not installed, PeerFailed when it cannot load the file."""
    installation = find_installation("openvino-genai", setup.program)
    require_file(setup.model_path, "openvino-genai")
    return ScriptedPeer("openvino-genai", installation, SCRIPT, setup)
