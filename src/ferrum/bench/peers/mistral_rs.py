"""mistral.rs, as its Python package runs it."""

from __future__ import annotations

from ferrum.bench.peers.peer import PeerSetup
from ferrum.bench.peers.python_peer import ScriptedPeer, find_installation, require_file

# It takes text only: words stand for the tokens, and the counts are its own.
SCRIPT = """
import json, os, random, sys
import mistralrs

settings = json.loads(sys.argv[1])
folder, name = os.path.split(settings["model"])
runner = mistralrs.Runner(
    which=mistralrs.Which.GGUF(quantized_model_id=folder, quantized_filename=name),
    no_kv_cache=False,
    prefix_cache_n=0,
)
print(json.dumps({"ready": True}), flush=True)
words = "time year people way day man thing woman life child world school state family".split()
for line in sys.stdin:
    question = json.loads(line)
    chosen = random.Random(str(question["prompt"][:8])).choices(words, k=len(question["prompt"]))
    try:
        usage = runner.send_completion_request(
            mistralrs.CompletionRequest(
                model="default",
                prompt=" ".join(chosen),
                max_tokens=question["output_tokens"],
                temperature=0.0,
                ignore_eos=True,
            )
        ).usage
        count = usage.completion_tokens
        answer = {
            "first_token_s": len(question["prompt"]) / usage.avg_prompt_tok_per_sec,
            "rest_s": (count - 1) / usage.avg_compl_tok_per_sec if count > 1 else 0.0,
            "output_tokens": count,
        }
    except Exception as error:
        answer = {"error": repr(error)}
    print(json.dumps(answer), flush=True)
"""


def open_mistral_rs(setup: PeerSetup) -> ScriptedPeer:
    """Raises PeerUnavailable when it is not installed, PeerFailed when it cannot load the file."""
    installation = find_installation("mistralrs", setup.program)
    require_file(setup.model_path, "mistralrs")
    # Its kernels run on a pool that is told its size in no other way.
    variables = {"RAYON_NUM_THREADS": str(setup.num_threads)}
    return ScriptedPeer("mistralrs", installation, SCRIPT, setup, variables=variables)
