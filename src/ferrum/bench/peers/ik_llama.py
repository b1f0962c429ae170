"""ik_llama.cpp, llama.cpp's fork with faster CPU kernels, as the package ik-llama-cpp-python runs it."""

from __future__ import annotations

from contextlib import ExitStack

from ferrum.bench.peers.best_configuration import BestConfiguration
from ferrum.bench.peers.peer import Peer, PeerFailed, PeerSetup
from ferrum.bench.peers.python_peer import ScriptedPeer, find_installation, require_file

# The package's own generate() copies all logits in Python for each token; the library is called directly.
SCRIPT = """
import json, sys, time
import numpy
from ik_llama_cpp import _ctypes_api as library
from ik_llama_cpp._internals import make_batch_range

settings = json.loads(sys.argv[1])
library.llama_backend_init()
model_options = library.llama_model_default_params()
model_options.n_gpu_layers = 0
model = library.llama_model_load_from_file(settings["model"].encode(), model_options)
if not model:
    print(json.dumps({"error": "it cannot load the model"}))
    sys.exit(1)
words = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))


def context_of(num_tokens):
    options = library.llama_context_default_params()
    options.n_ctx = options.n_batch = (num_tokens // 256 + 1) * 256
    options.n_threads = options.n_threads_batch = settings["threads"]
    options.flash_attn = settings["flash_attention"]
    return library.llama_init_from_model(model, options)


def step(context, tokens, position):
    batch = make_batch_range(tokens, pos_start=position)
    status = library.llama_decode(context, batch)
    library.llama_batch_free(batch)
    if status:
        raise RuntimeError(f"llama_decode: status {status}")
    logits = library.llama_get_logits_ith(context, -1)
    return int(numpy.ctypeslib.as_array(logits, (words,)).argmax())


print(json.dumps({"ready": True}), flush=True)
contexts = {}
for line in sys.stdin:
    question = json.loads(line)
    prompt, count = question["prompt"], question["output_tokens"]
    try:
        size = len(prompt) + count
        context = contexts[size] = contexts.get(size) or context_of(size)
        library.llama_kv_cache_clear(context)
        begin = time.perf_counter()
        token = step(context, prompt, 0)
        first = time.perf_counter()
        for position in range(len(prompt), size - 1):
            token = step(context, [token], position)
        rest = time.perf_counter() - first
        answer = {"first_token_s": first - begin, "rest_s": rest, "output_tokens": count}
    except Exception as error:
        answer = {"error": repr(error)}
    print(json.dumps(answer), flush=True)
"""


def open_ik_llama(setup: PeerSetup) -> BestConfiguration:
    """With flash attention and without. Raises PeerUnavailable when the package is not installed, PeerFailed
    when it cannot load the file.
    """
    installation = find_installation("ik-llama", setup.program, ("ik-llama-cpp-python",))
    require_file(setup.model_path, "ik-llama")
    with ExitStack() as opened:
        peers: dict[str, Peer] = {}
        failure: PeerFailed | None = None
        for configuration, flash_attention in (("flash attention on", True), ("flash attention off", False)):
            settings = {"flash_attention": flash_attention}
            try:
                peer = ScriptedPeer("ik-llama", installation, SCRIPT, setup, settings)
            except PeerFailed as failed:
                failure = failed
                continue
            opened.callback(peer.close)
            peers[configuration] = peer
        if not peers:
            assert failure is not None
            raise failure
        opened.pop_all()
        return BestConfiguration("ik-llama", installation.version, peers)
