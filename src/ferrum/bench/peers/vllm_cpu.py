"""vLLM's CPU build, which wants a folder with safetensors instead of the GGUF file."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from ferrum.bench.machine import processor_flags
from ferrum.bench.peers.child_process import ChildProcess, free_port
from ferrum.bench.peers.open_ai_server import OpenAiPeer
from ferrum.bench.peers.peer import PeerSetup, PeerUnavailable, PromptMaker
from ferrum.bench.peers.python_peer import find_installation


def open_vllm_cpu(setup: PeerSetup) -> OpenAiPeer:
    """``program`` is PYTHON:FOLDER, the interpreter that has vLLM and the model as safetensors.

    Raises PeerUnavailable when either is missing, PeerFailed when the server does not come up.
    """
    python, _, folder = (setup.program or "").partition(":")
    if not folder or not Path(folder).is_dir():
        raise PeerUnavailable("vLLM reads safetensors; give vllm=/path/to/python:/folder/with/safetensors")
    # The CPU build is a package of its own.
    installation = find_installation("vllm", python, ("vllm-cpu", "vllm"))
    dtype = fastest_dtype(processor_flags())
    cpus = sorted(os.sched_getaffinity(0))[: setup.num_threads]
    port = free_port()
    process = ChildProcess(vllm_command(installation.python, folder, dtype, port), vllm_variables(cpus))
    prompts = PromptMaker(setup.vocabulary_size)
    return OpenAiPeer(
        "vllm",
        f"{installation.version}, {dtype}",
        process,
        port,
        prompts,
        model="model",
        # A token that completes no character has no text, but it counts.
        extra={"return_token_ids": True},
    )


def fastest_dtype(flags: Collection[str]) -> str:
    """bfloat16 where the processor multiplies it; elsewhere it is unpacked first, and float32 is faster."""
    return "bfloat16" if {"avx512_bf16", "amx_bf16"} & set(flags) else "float32"


def vllm_variables(cpus: Sequence[int]) -> dict[str, str]:
    """By itself it keeps one processor free for its front end, which halves its speed on two."""
    return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus))}


def vllm_command(python: str, folder: str, dtype: str, port: int) -> list[str]:
    """No prefix cache: a repeated prompt would be free."""
    return [
        python,
        *("-m", "vllm.entrypoints.openai.api_server"),
        *("--model", folder),
        *("--served-model-name", "model"),
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--dtype", dtype),
        "--no-enable-prefix-caching",
    ]
