"""RequestRecord: a request that ended, whole: what was asked, under which seed, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.core.errors import FerrumError
from ferrum.core.request import InferenceResult, Prompt
from ferrum.core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """Enough to run the request again. ``max_tokens`` is the resolved budget, the seed is in ``result``.

    ``result`` is what there was when the request ended; ``error`` is there when it failed.
    """

    prompt: Prompt
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    result: InferenceResult
    error: FerrumError | None
    duration_s: float

    @property
    def request_id(self) -> str:
        return self.result.request_id
