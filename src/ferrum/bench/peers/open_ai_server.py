"""Peers that are OpenAI servers and say nothing of their times: measured from outside, HTTP included."""

from __future__ import annotations

import http.client
import random
from collections.abc import Mapping

from ferrum.bench.compare_phases import ComparePhase
from ferrum.bench.load.load_shape import WORDS
from ferrum.bench.load.stream_client import ServerAddress, StreamClient
from ferrum.bench.peers.child_process import ChildProcess
from ferrum.bench.peers.peer import PeerFailed, PromptMaker
from ferrum.bench.peers.together import answer_together, rate_together
from ferrum.bench.phases import PhaseKind

START_S = 900.0


class OpenAiPeer:
    """A Peer over a server process. Mutable: the process.

    With ``prompts`` it is sent plain completions of token ids; otherwise chats of random words, about a token
    each, and its own count of prompt tokens is believed.
    """

    def __init__(
        self,
        name: str,
        version: str,
        process: ChildProcess,
        port: int,
        prompts: PromptMaker | None,
        model: str = "default",
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Waits for the server. Raises PeerFailed when it ends or is not ready in time."""
        self._name = name
        self._version = version
        self._process = process
        self._port = port
        self._prompts = prompts
        self._words = random.Random(1)
        self._client = StreamClient(
            ServerAddress("127.0.0.1", port, "/v1"),
            model,
            is_chat=prompts is None,
            timeout_s=1800.0,
            extra={"temperature": 0.0, "ignore_eos": True, **(extra or {})},
        )
        try:
            process.wait_until(self._is_ready, START_S)
        except BaseException:
            process.close()
            raise

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        return self._version

    def measure(self, phase: ComparePhase) -> float:
        prompts = [self._prompt(phase.prompt_tokens) for _ in range(phase.num_sequences)]
        # A prefill that asks for a single token would have no gap, but its first token is all that counts.
        records = answer_together(self._client, prompts, phase.output_tokens)
        if phase.kind is PhaseKind.DECODE:
            return rate_together(records)
        first, num_tokens = records[0].first_token_s, records[0].prompt_tokens
        if first is None:
            raise PeerFailed("an answer without text")
        return (num_tokens or phase.prompt_tokens) / first

    def close(self) -> None:
        self._process.close()

    def _prompt(self, num_tokens: int) -> list[int] | str:
        if self._prompts is not None:
            return self._prompts.make(num_tokens)
        return " ".join(self._words.choices(WORDS, k=num_tokens))

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("GET", "/v1/models")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
