"""xllamacpp: llama.cpp as a portable Python wheel; its server runs under the interpreter that has it."""

from __future__ import annotations

import json

from ferrum.bench.compare_phases import ComparePhase
from ferrum.bench.peers.child_process import ChildProcess, free_port
from ferrum.bench.peers.llama_http import LlamaHttp
from ferrum.bench.peers.llama_server import (
    START_S,
    BestLlamaServer,
    FlashAttention,
    RunningServer,
    slot_tokens,
)
from ferrum.bench.peers.peer import PeerSetup, PromptMaker
from ferrum.bench.peers.python_peer import find_installation

# Runs in the peer's interpreter. Ends when its stdin does, so that it cannot outlive us.
SERVER_SCRIPT = """
import json, sys
import xllamacpp

settings = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path = settings["model"]
params.port = settings["port"]
params.n_ctx = settings["context"]
params.n_parallel = settings["parallel"]
params.cpuparams.n_threads = settings["threads"]
params.cpuparams_batch.n_threads = settings["threads"]
kinds = xllamacpp.llama_flash_attn_type
params.flash_attn_type = getattr(kinds, "LLAMA_FLASH_ATTN_TYPE_" + settings["flash_attention"])
server = xllamacpp.Server(params)
sys.stdin.read()
"""

_FLASH_ATTENTION = {FlashAttention.ON: "ENABLED", FlashAttention.OFF: "DISABLED"}


def open_xllamacpp(setup: PeerSetup) -> BestLlamaServer:
    """Raises PeerUnavailable when no interpreter with the package is known."""
    installation = find_installation("xllamacpp", setup.program)
    prompts = PromptMaker(setup.vocabulary_size)

    def start(phase: ComparePhase, flash_attention: FlashAttention) -> RunningServer:
        port = free_port()
        settings = json.dumps(
            {
                "model": str(setup.model_path),
                "port": port,
                "context": slot_tokens(phase) * phase.num_sequences,
                "parallel": phase.num_sequences,
                "threads": setup.num_threads,
                "flash_attention": _FLASH_ATTENTION[flash_attention],
            }
        )
        process = ChildProcess([installation.python, "-c", SERVER_SCRIPT, settings])
        http = LlamaHttp(port, prompts)
        try:
            process.wait_until(http.is_ready, START_S)
        except BaseException:
            process.close()
            raise
        return RunningServer(process, http, flash_attention)

    return BestLlamaServer("xllamacpp", installation.version, start)
