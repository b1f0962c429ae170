"""The recurrent states of the running sequences of one model: one size, one slot each."""

from __future__ import annotations

from ferrum.cache.recurrent_state import RecurrentStateManager


class SequenceStates:
    """What a scheduler asks for when a request starts and stops running. Mutated by the scheduler only."""

    def __init__(self, manager: RecurrentStateManager, state_bytes: int) -> None:
        self._manager = manager
        self._state_bytes = state_bytes

    @property
    def has_room(self) -> bool:
        return self._manager.has_room(self._state_bytes)

    def take(self, request_id: str) -> int:
        """The slot of the request's state. Raises AlreadyExists or ResourceExhausted."""
        return self._manager.allocate(request_id, self._state_bytes).slot

    def give_back(self, request_id: str) -> None:
        self._manager.release(request_id)
