"""From a request's parameters to the gate of its answer: the token policy and what the request adds to it."""

from __future__ import annotations

from typing import Protocol

from ferrum.completion_boundary.compile_boundary import compile_boundary, token_ids_of
from ferrum.completion_boundary.symbols import SymbolTokenizer
from ferrum.core.completion_boundary import Immediate
from ferrum.core.errors import InvalidRequest
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.token_gate import TokenGate, join_gates
from ferrum.sampling.policy_gate import policy_gate
from ferrum.sampling.request_rules import RuleTokenizer, asked_gates
from ferrum.sampling.token_policy import PolicyTokenizer, TokenPolicy, single_tokens
from ferrum.tokenization.stop_rules import StopRules


class GateTokenizer(PolicyTokenizer, SymbolTokenizer, RuleTokenizer, Protocol):
    """What making gates asks of a tokenizer."""


class AnswerGates:
    """Makes the gates of one model's answers. Stateless; any thread may call it."""

    def __init__(self, tokenizer: GateTokenizer, policy: TokenPolicy) -> None:
        self._tokenizer = tokenizer
        self._policy = policy

    def gate_for(self, sampling: SamplingParams, stops: StopRules, max_tokens: int) -> TokenGate | None:
        """None where every token may come everywhere, as for most requests.

        Raises InvalidRequest for a completion boundary that this model cannot have, for token ids that it
        does not know, and when no token at all may begin the answer.
        """
        tokenizer, boundary = self._tokenizer, sampling.completion_boundary
        size = self._policy.vocabulary_size
        texts = () if isinstance(boundary, Immediate) else boundary.texts
        gates: list[TokenGate | None] = [
            compile_boundary(boundary, tokenizer, stops.end_ids, size, max_tokens),
            policy_gate(
                self._policy,
                tokenizer,
                allowed_ids=stops.terminal_ids
                | single_tokens(tokenizer, sampling.control_texts)
                | {token_id for text in texts for token_id in token_ids_of(tokenizer, text)},
                forbidden_first_ids=[
                    token_id
                    for token_id in single_tokens(tokenizer, sampling.forbidden_first_texts)
                    if token_id < size
                ],
            ),
            *asked_gates(sampling, stops, tokenizer, size),
        ]
        gate = join_gates([gate for gate in gates if gate is not None])
        if gate is not None and gate.mask is not None and not gate.mask.any():
            raise InvalidRequest(
                "leaves no token that may begin the answer, together with what else forbids some",
                param="allowed_token_ids" if sampling.allowed_token_ids is not None else "bad_words",
            )
        return gate
