"""llama.cpp's server as a measuring device: its /completion says how long prompt and answer took inside."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

from ferrum.bench.compare_phases import ComparePhase
from ferrum.bench.load.stream_client import ServerAddress, StreamClient
from ferrum.bench.peers.peer import PeerFailed, PromptMaker
from ferrum.bench.peers.together import answer_together, rate_together
from ferrum.bench.phases import PhaseKind

_TIMEOUT_S = 1800.0


class LlamaHttp:
    """One llama.cpp server that is used for one phase, whose prompt it may keep in its cache."""

    def __init__(self, port: int, prompts: PromptMaker) -> None:
        self._port = port
        self._prompts = prompts
        self._kept_prompt: list[int] | None = None

    def is_ready(self) -> bool:
        """Whether it has loaded its model."""
        try:
            return self._exchange("GET", "/health", None)[0] == 200
        except OSError:
            return False

    def measure(self, phase: ComparePhase) -> float:
        """Tokens per second by the server's own clock; several sequences by ours. Raises PeerFailed."""
        if phase.num_sequences > 1:
            return self._measure_together(phase)
        timings = self._complete(self._prompt_for(phase), phase)
        if phase.kind is PhaseKind.PREFILL:
            return rate_of(timings, "prompt", phase.prompt_tokens)
        return rate_of(timings, "predicted", phase.output_tokens)

    def _prompt_for(self, phase: ComparePhase) -> list[int]:
        """A prefill needs a new prompt each time; a decode goes on from the same one, out of the cache."""
        if phase.kind is PhaseKind.PREFILL:
            return self._prompts.make(phase.prompt_tokens)
        if self._kept_prompt is None:
            self._kept_prompt = self._prompts.make(phase.prompt_tokens)
        return self._kept_prompt

    def _complete(self, prompt: list[int], phase: ComparePhase) -> Mapping[str, Any]:
        body = {
            "prompt": prompt,
            "n_predict": phase.output_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
            "cache_prompt": phase.kind is PhaseKind.DECODE,
        }
        try:
            status, answer = self._exchange("POST", "/completion", body)
        except OSError as error:
            raise PeerFailed(f"connection: {error}") from None
        if status != 200:
            raise PeerFailed(f"status {status}: {answer[:200].decode(errors='replace')}")
        timings = json.loads(answer).get("timings")
        if not isinstance(timings, dict):
            raise PeerFailed("its answer has no timings")
        return timings

    def _measure_together(self, phase: ComparePhase) -> float:
        client = StreamClient(
            ServerAddress("127.0.0.1", self._port, "/v1"),
            "peer",
            is_chat=False,
            timeout_s=_TIMEOUT_S,
            extra={"ignore_eos": True, "temperature": 0.0, "cache_prompt": False},
        )
        prompts = [self._prompts.make(phase.prompt_tokens) for _ in range(phase.num_sequences)]
        return rate_together(answer_together(client, prompts, phase.output_tokens))

    def _exchange(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"bad answer: {error!r}") from None
        finally:
            connection.close()


def rate_of(timings: Mapping[str, Any], part: str, num_tokens: int) -> float:
    """Tokens per second of ``part`` ("prompt" or "predicted"), which must have had ``num_tokens``.

    Raises PeerFailed when the server computed another number: the figure would be of something else.
    """
    count, milliseconds = timings.get(f"{part}_n"), timings.get(f"{part}_ms")
    if count != num_tokens or not milliseconds:
        raise PeerFailed(f"it computed {count} {part} tokens in {milliseconds} ms, not {num_tokens}")
    return float(count) / float(milliseconds) * 1e3
