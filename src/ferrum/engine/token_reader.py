"""Brings the tokens of a step to the answers that they belong to. Ends nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from ferrum.core.errors import FerrumError, InternalError
from ferrum.core.request import FinishReason
from ferrum.core.step import SampledToken
from ferrum.engine.active_request import ActiveRequest
from ferrum.engine.active_requests import ActiveRequests
from ferrum.engine.delivery import PostOffice
from ferrum.engine.engine_news import EngineNews
from ferrum.engine.output_processor import OutputUpdate
from ferrum.engine.step_runner import StepOutcome

Ending = tuple[ActiveRequest, str, FinishReason | FerrumError]
"""An answer that ends: with its last text and a reason, or with an error."""

_log = logging.getLogger("ferrum.engine")


class TokenReader:
    """Posts the text that may be shown. Used by the engine's thread only, without its lock."""

    def __init__(self, requests: ActiveRequests, post_office: PostOffice, news: EngineNews) -> None:
        self._requests = requests
        self._post_office = post_office
        self._news = news

    def read(self, outcome: StepOutcome) -> tuple[list[SampledToken], list[Ending]]:
        """The tokens that belong to answers, and the answers that end."""
        endings: list[Ending] = [
            (self._requests[request_id], "", error) for request_id, error in outcome.failures.items()
        ]
        for scored in outcome.scored:
            self._requests[scored.request_id].output.accept_prompt(scored)
        tokens: list[SampledToken] = []
        chosen_for: list[ActiveRequest] = []
        with_forced: dict[ActiveRequest, None] = {}
        ended: set[str] = set()
        for token in outcome.tokens:
            request_id = token.request_id
            # An answer may end in the middle of drafted tokens that were right.
            if request_id in ended:
                continue
            request = self._requests[request_id]
            tokens.append(token)
            chosen_for.append(request)
            if request.spec.most_forced:
                with_forced[request] = None
            try:
                ending = self._show(request, request.output.accept(token))
            except Exception as error:
                ending = _failed(request, error)
            if ending is not None:
                endings.append(ending)
                ended.add(request_id)
        endings += self._follow(request for request in with_forced if request.request_id not in ended)
        self._news.tokens_chosen(chosen_for)
        return tokens, endings

    def _follow(self, requests: Iterable[ActiveRequest]) -> Iterator[Ending]:
        """Adds the tokens that can only come next to the answers; those that end with them."""
        for request in requests:
            try:
                ending = self._show(request, request.output.follow())
            except Exception as error:
                ending = _failed(request, error)
            if ending is not None:
                yield ending

    def _show(self, request: ActiveRequest, update: OutputUpdate) -> Ending | None:
        """Posts what may be shown of a request's new tokens, unless the answer ends with them."""
        text, reason, _ = update
        if reason is not None:
            return request, text, reason
        if text and request.outlet.shows_text:
            self._post_office.post(request.outlet, request.output.delta(text), None)
        return None


def _failed(request: ActiveRequest, error: Exception) -> Ending:
    if isinstance(error, FerrumError):
        return request, "", error
    _log.error("reading a token of %s failed", request.request_id, exc_info=error)
    return request, "", InternalError(f"a token has no text: {error!r}")
