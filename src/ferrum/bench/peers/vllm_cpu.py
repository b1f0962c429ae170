"""vLLM's CPU build, which wants a folder with safetensors instead of the GGUF file."""

from __future__ import annotations

from pathlib import Path

from ferrum.bench.peers.child_process import ChildProcess, free_port
from ferrum.bench.peers.open_ai_server import OpenAiPeer
from ferrum.bench.peers.peer import PeerSetup, PeerUnavailable, PromptMaker
from ferrum.bench.peers.python_peer import package_version


def open_vllm_cpu(setup: PeerSetup) -> OpenAiPeer:
    """``program`` is PYTHON:FOLDER, the interpreter that has vLLM and the model as safetensors.

    Raises PeerUnavailable when either is missing, PeerFailed when the server does not come up.
    """
    python, _, folder = (setup.program or "").partition(":")
    if not folder or not Path(folder).is_dir():
        raise PeerUnavailable("vLLM reads safetensors; give vllm=/path/to/python:/folder/with/safetensors")
    version = package_version(python, "vllm")
    port = free_port()
    process = ChildProcess(vllm_command(python, folder, port))
    prompts = PromptMaker(setup.vocabulary_size)
    return OpenAiPeer("vllm", version, process, port, prompts, model="model")


def vllm_command(python: str, folder: str, port: int) -> list[str]:
    """No prefix cache: a repeated prompt would be free. Float32, which the CPU build is fastest in."""
    return [
        python,
        *("-m", "vllm.entrypoints.openai.api_server"),
        *("--model", folder),
        *("--served-model-name", "model"),
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--dtype", "float32"),
        "--no-enable-prefix-caching",
    ]
