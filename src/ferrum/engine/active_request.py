"""A request between acceptance and its end, as the engine's thread holds it."""

from __future__ import annotations

from ferrum.engine.delivery import Outlet
from ferrum.engine.output_processor import RequestOutput
from ferrum.scheduling.sequence import SequenceSpec


class ActiveRequest:
    """Ties a request's tokens, its growing answer and the place the answer goes. Times are monotonic seconds.

    Mutated by the engine's thread only.
    """

    __slots__ = ("last_token_at", "outlet", "output", "spec", "submitted_at")

    def __init__(
        self, spec: SequenceSpec, output: RequestOutput, outlet: Outlet, submitted_at: float
    ) -> None:
        self.spec = spec
        self.output = output
        self.outlet = outlet
        self.submitted_at = submitted_at
        self.last_token_at: float | None = None

    @property
    def request_id(self) -> str:
        return self.spec.request_id
