"""Brings the tokens of a step to the answers that they belong to. Ends nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

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
        ended: set[str] = set()
        for token in outcome.tokens:
            # An answer may end in the middle of drafted tokens that were right.
            if token.request_id in ended:
                continue
            tokens.append(token)
            request = self._requests[token.request_id]
            if self._read(request, partial(request.output.accept, token), endings):
                ended.add(request.request_id)
        for request_id in dict.fromkeys(token.request_id for token in tokens):
            request = self._requests[request_id]
            if request.spec.most_forced and request_id not in ended:
                self._read(request, request.output.follow, endings)
        self._news.tokens_chosen(self._requests[token.request_id] for token in tokens)
        return tokens, endings

    def _read(self, request: ActiveRequest, read: Callable[[], OutputUpdate], endings: list[Ending]) -> bool:
        """Posts what ``read`` makes of a request's new tokens; True when the answer ends with them."""
        try:
            update = read()
        except FerrumError as error:
            endings.append((request, "", error))
            return True
        except Exception as error:
            _log.exception("reading a token of %s failed", request.request_id)
            endings.append((request, "", InternalError(f"a token has no text: {error!r}")))
            return True
        if update.finish_reason is not None:
            endings.append((request, update.text, update.finish_reason))
            return True
        if update.text and request.outlet.shows_text:
            self._post_office.post(request.outlet, request.output.delta(update.text), None)
        return False
