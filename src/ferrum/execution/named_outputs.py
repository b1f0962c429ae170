"""From a runtime's arrays back to the parts of the plan: whose token is whose."""

from __future__ import annotations

from ferrum.core.logprobs import RowLogprobs
from ferrum.core.step import SampledToken, ScoredTokens, StepPlan, StepResult
from ferrum.runtimes.protocol import LogprobOutput, StepOutput


def name_outputs(plan: StepPlan, output: StepOutput) -> StepResult:
    """Puts request ids on the outputs, which come in the order of the plan's parts, and within a part as
    scored tokens and choices.
    """
    token_ids = output.token_ids.tolist()
    digests = output.logit_digests.tolist() if len(output.logit_digests) else [None] * len(token_ids)
    if output.logprobs is None and not len(output.mirostat_mu):
        request_ids = [part.request_id for part in plan.parts for _ in part.choices]
        return StepResult(tuple(map(SampledToken, request_ids, token_ids, digests)))
    mirostat_mu = output.mirostat_mu.tolist()
    rows = None if output.logprobs is None else _Rows(output.logprobs)
    tokens: list[SampledToken] = []
    scored: list[ScoredTokens] = []
    row = 0
    for part in plan.parts:
        if part.scored is not None:
            assert rows is not None
            num_top = part.scored.num_top
            ends = row + len(part.scored.token_ids)
            found = tuple(rows.read(each, num_top) for each in range(row, ends))
            scored.append(ScoredTokens(part.request_id, part.start_position, found))
            row = ends
        for choice in part.choices:
            logprobs = None if rows is None or choice.logprobs is None else rows.read(row, choice.logprobs)
            mu = mirostat_mu[row] if choice.has_mirostat else None
            tokens.append(SampledToken(part.request_id, token_ids[row], digests[row], logprobs, mu))
            row += 1
    return StepResult(tuple(tokens), tuple(scored))


class _Rows:
    """The rows of a LogprobOutput as values."""

    def __init__(self, output: LogprobOutput) -> None:
        self._values = output.values.tolist()
        self._ranks = output.ranks.tolist()
        self._top_ids = output.top_ids.tolist()
        self._top_values = output.top_values.tolist()

    def read(self, row: int, num_top: int) -> RowLogprobs:
        return RowLogprobs(
            self._values[row],
            self._ranks[row],
            tuple(self._top_ids[row][:num_top]),
            tuple(self._top_values[row][:num_top]),
        )
