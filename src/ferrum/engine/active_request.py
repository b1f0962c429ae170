"""A request between acceptance and its end, as the engine's thread holds it."""

from __future__ import annotations

from ferrum.core.errors import FerrumError
from ferrum.core.request import FinishReason, Prompt
from ferrum.core.request_record import RequestRecord
from ferrum.engine.delivery import End, Outlet
from ferrum.engine.output_processor import RequestOutput
from ferrum.scheduling.sequence import SequenceSpec


class ActiveRequest:
    """Ties a request's tokens, its growing answer and the place the answer goes. Times are monotonic seconds.

    ``prompt`` is what the tokens were made of. It may take ``timeout_s`` seconds in all, if that
    is not None. ``group``: all answers of a request for several, this one among them; else empty.

    Mutated by the engine's thread only.
    """

    __slots__ = (
        "group",
        "last_token_at",
        "outlet",
        "output",
        "prompt",
        "spec",
        "submitted_at",
        "timeout_s",
    )

    def __init__(
        self,
        spec: SequenceSpec,
        output: RequestOutput,
        outlet: Outlet,
        submitted_at: float,
        prompt: Prompt,
        timeout_s: float | None = None,
    ) -> None:
        self.spec = spec
        self.output = output
        self.outlet = outlet
        self.submitted_at = submitted_at
        self.prompt = prompt
        self.timeout_s = timeout_s
        self.last_token_at: float | None = None
        self.group: tuple[ActiveRequest, ...] = ()

    @property
    def request_id(self) -> str:
        return self.spec.request_id

    @property
    def handle_id(self) -> str:
        """The id of the request that it is an answer to: the first answer's."""
        return self.group[0].request_id if self.group else self.request_id

    @property
    def has_tokens(self) -> bool:
        """Whether there is anything of an answer to the request, be it another one."""
        return any(each.output.num_tokens for each in self.group or (self,))

    @property
    def deadline(self) -> float | None:
        """When it must have ended, if ever."""
        return None if self.timeout_s is None else self.submitted_at + self.timeout_s

    def record(self, end: End, reason: FinishReason, duration_s: float) -> RequestRecord:
        """All there is to know of the request, which ended with ``end`` for ``reason``."""
        return RequestRecord(
            prompt=self.prompt,
            prompt_ids=self.spec.prompt_ids,
            sampling=self.spec.sampling,
            max_tokens=self.spec.max_tokens,
            result=self.output.result(reason) if isinstance(end, FerrumError) else end,
            error=end if isinstance(end, FerrumError) else None,
            duration_s=duration_s,
        )
