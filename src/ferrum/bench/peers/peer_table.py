"""The engines that a comparison knows, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ferrum.bench.peers.ik_llama import open_ik_llama
from ferrum.bench.peers.llama_bench import open_llama_bench
from ferrum.bench.peers.llama_server import open_llama_server
from ferrum.bench.peers.mistral_rs import open_mistral_rs
from ferrum.bench.peers.openvino_genai import open_openvino_genai
from ferrum.bench.peers.peer import Peer, PeerSetup
from ferrum.bench.peers.vllm_cpu import open_vllm_cpu
from ferrum.bench.peers.xllamacpp import open_xllamacpp
from ferrum.core.errors import UnknownComponent

OpenPeer = Callable[[PeerSetup], Peer]

PEERS: Mapping[str, OpenPeer] = MappingProxyType(
    {
        "llama-server": open_llama_server,
        "llama-bench": open_llama_bench,
        "xllamacpp": open_xllamacpp,
        "ik-llama": open_ik_llama,
        "openvino-genai": open_openvino_genai,
        "mistralrs": open_mistral_rs,
        "vllm": open_vllm_cpu,
    }
)


def opener_of(name: str) -> OpenPeer:
    """Raises UnknownComponent, which lists the names there are."""
    if name not in PEERS:
        raise UnknownComponent("peer", name, PEERS)
    return PEERS[name]
