"""Compiles constraints beside the engine's loop: once each, on few threads, within limits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

from llguidance import LLMatcher, LLParserLimits

from ferrum.constraints.constraint_gate import AnswerReading, ConstraintGate, first_gate, next_mask
from ferrum.constraints.constraint_tokenizer import ConstraintTokenizer
from ferrum.constraints.engine_messages import engine_problem, one_line
from ferrum.constraints.grammar_source import read_constraint
from ferrum.constraints.thread_priority import give_way
from ferrum.constraints.vocabulary_tokenizer import VocabularyTokenizer
from ferrum.core.constraint import Constraint, ConstraintKind
from ferrum.core.errors import ConstraintTooComplex, FerrumError, InternalError, InvalidConstraint
from ferrum.core.token_gate import full_mask
from ferrum.core.token_rules import TokenMask

CACHE_ENTRIES = 256
COMPILE_S = 4.0
_NUM_WORKERS = 2
# The most it may take to read a vocabulary on a busy machine.
_VOCABULARY_S = 30.0


class CompiledConstraint:
    """A grammar before its first token, from which answers start. Safe to share."""

    def __init__(self, engine: LLMatcher, reading: AnswerReading, mask: TokenMask) -> None:
        self._engine = engine
        self._reading = reading
        self._mask = mask
        self._lock = threading.Lock()

    def start(self) -> ConstraintGate:
        """The beginning of a new answer."""
        with self._lock:
            engine = self._engine.deep_copy()
        return first_gate(engine, self._reading, self._mask)


class ConstraintCompiler:
    """Compiles, and keeps the last ``CACHE_ENTRIES`` results, refusals too. Any thread may call it.

    ``vocabulary_size`` is the model's, whose masks these are. A compilation that takes longer than
    ``compile_s`` is refused and goes on beside, to be there for the next one who asks.
    """

    def __init__(
        self, tokenizer: VocabularyTokenizer, vocabulary_size: int, compile_s: float = COMPILE_S
    ) -> None:
        self._tokenizer = ConstraintTokenizer(tokenizer)
        self._every_token = full_mask(vocabulary_size)
        self._compile_s = compile_s
        self._lock = threading.Lock()
        self._known: OrderedDict[Constraint, Future[CompiledConstraint]] = OrderedDict()
        self._workers: ThreadPoolExecutor | None = None

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Waits on the calling thread.

        Raises InvalidConstraint, ConstraintTooComplex, or InternalError without a grammar engine.
        """
        future = self._future(constraint)
        wait([future], self._patience_s)
        return self._result(future)

    async def compile_beside(self, constraint: Constraint) -> CompiledConstraint:
        """As ``compile``, while the calling loop goes on."""
        future = self._future(constraint)
        if not future.done():
            await asyncio.wait([asyncio.wrap_future(future)], timeout=self._patience_s)
        return self._result(future)

    @property
    def _patience_s(self) -> float:
        """Reading the vocabulary, which happens once, is not held against the first constraint."""
        return self._compile_s if self._tokenizer.is_made else self._compile_s + _VOCABULARY_S

    def _result(self, future: Future[CompiledConstraint]) -> CompiledConstraint:
        if not future.done():
            raise ConstraintTooComplex(f"it is not compiled after {self._compile_s:g} s")
        error = future.exception()
        if error is not None:
            # Kept and raised again and again: it must not keep every caller's frames.
            raise error.with_traceback(None)
        return future.result()

    def warm_up(self) -> None:
        """Makes the engine's tokenizer now, on a worker, so that the first constraint need not wait."""
        with self._lock:
            self._pool().submit(self._tokenizer.get)

    def close(self) -> None:
        """Ends the workers; what they are at ends by itself."""
        with self._lock:
            workers, self._workers = self._workers, None
            self._known.clear()
        if workers is not None:
            workers.shutdown(wait=False, cancel_futures=True)

    def _future(self, constraint: Constraint) -> Future[CompiledConstraint]:
        with self._lock:
            future = self._known.get(constraint)
            if future is None:
                future = self._pool().submit(self._compile_now, constraint)
                self._known[constraint] = future
                if len(self._known) > CACHE_ENTRIES:
                    self._known.popitem(last=False)
            self._known.move_to_end(constraint)
            return future

    def _pool(self) -> ThreadPoolExecutor:
        if self._workers is None:
            # They must not take the processor from the threads that compute tokens.
            self._workers = ThreadPoolExecutor(_NUM_WORKERS, "ferrum-constraint", initializer=give_way)
        return self._workers

    def _compile_now(self, constraint: Constraint) -> CompiledConstraint:
        try:
            return self._build(constraint)
        except FerrumError:
            raise
        except RecursionError:
            raise InvalidConstraint(f"the {constraint.kind} is nested too deep") from None
        except Exception as error:
            raise InternalError(f"compiling a {constraint.kind} failed: {error!r}") from error

    def _build(self, constraint: Constraint) -> CompiledConstraint:
        tokenizer = self._tokenizer.get()
        limits = LLParserLimits(verbose_errors=False)
        delimiter = constraint.starts_after
        source = read_constraint(
            constraint,
            validate=partial(engine_problem, tokenizer=tokenizer, limits=limits),
            delimiter_id=None if delimiter is None else self._tokenizer.delimiter_id(delimiter),
            deadline=time.monotonic() + self._compile_s,
        )
        engine = LLMatcher(tokenizer, source.grammar, log_level=0, limits=limits)
        mask = self._first_mask(engine, constraint.kind)
        reading = AnswerReading(
            check=source.check,
            token_bytes=self._tokenizer.token_bytes,
            end_ids=self._tokenizer.end_ids,
            every_token=self._every_token,
            delimiter=None if delimiter is None else delimiter.encode(),
            is_json=constraint.is_json,
        )
        return CompiledConstraint(engine, reading, mask)

    def _first_mask(self, engine: LLMatcher, kind: ConstraintKind) -> TokenMask:
        """[num_words]. Raises InvalidConstraint for a grammar without a first token."""
        mask = next_mask(engine, len(self._every_token))
        if engine.is_error() or engine.is_stopped():
            problem = one_line(engine.get_error()).removeprefix("NoExtensionBias")
            raise InvalidConstraint(f"no text fulfils the {kind}{': ' if problem else ''}{problem}")
        if not mask.any():
            raise InvalidConstraint(f"no token of this model can begin a text that fulfils the {kind}")
        return mask
