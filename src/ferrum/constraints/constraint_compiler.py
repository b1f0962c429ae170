"""Compiles constraints beside the engine's loop: once each, on few threads, within limits.

What can be done elsewhere is done by ``ConstraintReader``'s processes; here the grammar engine compiles what
they let through, without the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial

from llguidance import LLMatcher

from ferrum.constraints.constraint_gate import AnswerReading, ConstraintGate, first_gate, next_mask
from ferrum.constraints.constraint_reader import ConstraintReader
from ferrum.constraints.constraint_tokenizer import ConstraintTokenizer
from ferrum.constraints.engine_messages import one_line
from ferrum.constraints.grammar_check import beginning_problem, engine_limits
from ferrum.constraints.vocabulary_tokenizer import VocabularyTokenizer
from ferrum.core.constraint import Constraint, ConstraintKind
from ferrum.core.errors import ConstraintTooComplex, FerrumError, InternalError, InvalidConstraint
from ferrum.core.processor_loans import ProcessorLoans
from ferrum.core.token_gate import full_mask
from ferrum.core.token_rules import TokenMask

CACHE_ENTRIES = 256
COMPILE_S = 4.0
_NUM_WORKERS = 2
# Threads that wait for processes which look at answers.
_NUM_LOOKERS = 2
_NOT_LOOKED_AT = (ConstraintKind.GRAMMAR, ConstraintKind.STRUCTURAL_TAG)
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
    ``compile_s`` is refused and goes on beside, to be there for the next one who asks. ``reader`` becomes the
    compiler's own. A processor is borrowed of ``loans`` for each compilation.
    """

    def __init__(
        self,
        tokenizer: VocabularyTokenizer,
        vocabulary_size: int,
        compile_s: float = COMPILE_S,
        reader: ConstraintReader | None = None,
        loans: ProcessorLoans | None = None,
    ) -> None:
        self._loans = loans or ProcessorLoans()
        self._tokenizer = ConstraintTokenizer(tokenizer)
        self._reader = reader or ConstraintReader()
        self._every_token = full_mask(vocabulary_size)
        self._compile_s = compile_s
        self._lock = threading.Lock()
        self._known: OrderedDict[Constraint, Future[CompiledConstraint]] = OrderedDict()
        self._workers: ThreadPoolExecutor | None = None
        self._lookers: ThreadPoolExecutor | None = None

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Waits on the calling thread.

        Raises InvalidConstraint, ConstraintTooComplex, or InternalError without a grammar engine.
        """
        patience_s = self._patience_s  # Before a worker makes what it allows for.
        future = self._future(constraint)
        wait([future], patience_s)
        return self._result(future)

    async def compile_beside(self, constraint: Constraint) -> CompiledConstraint:
        """As ``compile``, while the calling loop goes on."""
        patience_s = self._patience_s
        future = self._future(constraint)
        if not future.done():
            waiting = asyncio.wrap_future(future)
            await asyncio.wait([waiting], timeout=patience_s)
            if waiting.done():
                waiting.exception()  # Looked at here; raised below.
        return self._result(future)

    @property
    def _patience_s(self) -> float:
        """What happens once (reading the vocabulary, starting a process) is not held against the first."""
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
        """Makes the engine's tokenizer and a process now, beside, so that no constraint waits for them."""
        with self._lock:
            self._pool().submit(self._prepare)

    def close(self) -> None:
        """Ends the workers; what they are at ends by itself."""
        with self._lock:
            pools = self._workers, self._lookers
            self._workers = self._lookers = None
            self._known.clear()
        for pool in pools:
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)
        self._reader.close()

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
            self._workers = ThreadPoolExecutor(_NUM_WORKERS, "ferrum-constraint")
        return self._workers

    def _compile_now(self, constraint: Constraint) -> CompiledConstraint:
        try:
            if not self._tokenizer.is_made:
                self._prepare()  # Two things at once: with one processor they would take twice as long.
            with self._loans.borrowed():
                return self._build(constraint)
        except FerrumError:
            raise
        except RecursionError:
            raise InvalidConstraint(f"the {constraint.kind} is nested too deep") from None
        except Exception as error:
            raise InternalError(f"compiling a {constraint.kind} failed: {error!r}") from error

    def _prepare(self) -> None:
        """Both take their time; the process starts while the vocabulary is read."""
        self._reader.warm_up()
        self._tokenizer.get()

    def _build(self, constraint: Constraint) -> CompiledConstraint:
        tokenizer = self._tokenizer.get()
        delimiter = constraint.starts_after
        delimiter_id = None if delimiter is None else self._tokenizer.delimiter_id(delimiter)
        grammar = self._reader.read(constraint, delimiter_id, self._compile_s)
        engine = LLMatcher(tokenizer, grammar, log_level=0, limits=engine_limits())
        if engine.is_error():
            raise InvalidConstraint(
                f"the {constraint.kind} cannot be enforced: {one_line(engine.get_error())}"
            )
        mask = self._first_mask(engine, constraint.kind)
        problem = beginning_problem(engine)
        if problem is not None:
            raise ConstraintTooComplex(problem)
        is_looked_at = constraint.kind not in _NOT_LOOKED_AT
        reading = AnswerReading(
            look=partial(self._look, replace(constraint, starts_after=None)) if is_looked_at else None,
            token_bytes=self._tokenizer.token_bytes,
            end_ids=self._tokenizer.end_ids,
            every_token=self._every_token,
            delimiter=None if delimiter is None else delimiter.encode(),
            is_json=constraint.is_json,
        )
        return CompiledConstraint(engine, reading, mask)

    def _look(self, constraint: Constraint, text: str) -> Future[str | None]:
        with self._lock:
            if self._lookers is None:
                self._lookers = ThreadPoolExecutor(_NUM_LOOKERS, "ferrum-answer-look")
            return self._lookers.submit(self._reader.problem, constraint, text)

    def _first_mask(self, engine: LLMatcher, kind: ConstraintKind) -> TokenMask:
        """[num_words]. Raises InvalidConstraint for a grammar without a first token."""
        mask = next_mask(engine, len(self._every_token))
        if engine.is_error() or engine.is_stopped():
            problem = one_line(engine.get_error()).removeprefix("NoExtensionBias")
            raise InvalidConstraint(f"no text fulfils the {kind}{': ' if problem else ''}{problem}")
        if not mask.any():
            raise InvalidConstraint(f"no token of this model can begin a text that fulfils the {kind}")
        return mask
