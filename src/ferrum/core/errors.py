"""The exceptions Ferrum raises on purpose: types with fields, one readable line each.

FerrumError
├── InvalidConfig              a configuration value or combination that cannot work
├── UnknownComponent           a name that no registry table holds
│   └── UnknownPrefix          no pinned or saved prefix has that name
├── ModelError                 the model or its files
│   ├── ModelNotFound          nothing answers to that model argument
│   ├── DownloadFailed         a source could not be fetched, or came back wrong
│   ├── MalformedCheckpoint    a weight file breaks its format
│   ├── UnsupportedModel       a well-formed model that this build cannot run
│   ├── TokenizerError         vocabulary or tokenizer metadata that cannot be used
│   ├── ForbiddenToken         a token was chosen that may not come there
│   └── MalformedAnswer        the model's answer broke the form it must have
├── InvalidRequest             the caller's request; the caller must change it
│   ├── ContextLengthExceeded  prompt and output do not fit the context
│   ├── ChatTemplateError      no template, or the template refused the messages
│   ├── InvalidConstraint      a constraint on the answer that is wrong, or cannot be enforced
│   ├── ConstraintTooComplex   a constraint that takes more time or memory than one request may
│   ├── DuplicateRequest       the id is active already
│   └── PrefixPinnedAlready    the name of a pinned prefix is taken
├── BrokenConstraint           an answer that ended and is not what the constraint says
│   └── AnswerCutByStop        because a stop string of the request's own ended it too early
├── QueueFull                  bounded waiting queue; try later
├── DeadlineExceeded           the time a request gave itself passed before its first token
├── ResourceExhausted          a finite resource (KV blocks, slots, memory) ran out
├── UnusableSavedPrefix        a file of a saved prefix that cannot be read or used here
│   └── PrefixNotSaved         it cannot be written
├── UnusableBundle             a replay bundle that is damaged, or belongs to another model
├── EngineClosed               submitted while the engine is shutting down
├── EngineStalled              there is work and the engine makes no step
├── RequestCancelled           the caller went away or cancelled
└── InternalError              our own bug, reported instead of hidden
    └── AlreadyExists          an owner asked again for what it may hold once

``str(error)`` is one line that says what, where and what to do. Nobody parses it: callers read the fields.
"""

from __future__ import annotations

from collections.abc import Iterable


class FerrumError(Exception):
    """Base of every error Ferrum raises deliberately."""


class InvalidConfig(FerrumError):
    """A configuration value or combination that cannot work; ``field`` names it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class UnknownComponent(FerrumError):
    """A table was asked for a name it does not hold; ``known`` lists what it does."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(sorted(known))
        super().__init__(f"no {kind} named {name!r}; there are: {', '.join(self.known) or 'none'}")


class UnknownPrefix(UnknownComponent):
    """No prefix that is ``kind`` ("pinned prefix", "saved prefix") has this name."""


class ModelError(FerrumError):
    """Something about the model or its files."""


class ModelNotFound(ModelError):
    """Nothing answers to ``model``; ``hint`` says what to try."""

    def __init__(self, model: str, hint: str) -> None:
        super().__init__(f"model {model!r} not found: {hint}")
        self.model = model
        self.hint = hint


class DownloadFailed(ModelError):
    """``source`` could not be fetched, or what came back is not what it should be."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"cannot fetch {source}: {problem}")
        self.source = source
        self.problem = problem


class MalformedCheckpoint(ModelError):
    """The file at ``path`` breaks its format; ``problem`` names the key or tensor and the numbers."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class UnsupportedModel(ModelError):
    """A well-formed model that this build cannot run; ``feature`` says what is missing."""

    def __init__(self, model: str, feature: str) -> None:
        super().__init__(f"{model}: {feature}")
        self.model = model
        self.feature = feature


class TokenizerError(ModelError):
    """Vocabulary or tokenizer metadata that cannot be used; ``key`` names the metadata key or file."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"tokenizer ({key}): {problem}")
        self.key = key
        self.problem = problem


class ForbiddenToken(ModelError):
    """The token ``token_id`` was chosen where it may not come, so the answer cannot go on.

    ``attempts``: choices that were made before giving up.
    """

    def __init__(self, token_id: int, attempts: int = 1) -> None:
        tries = f" in each of {attempts} attempts" if attempts > 1 else ""
        super().__init__(
            f"token {token_id} was chosen{tries} where it is not allowed; the sampler or executor "
            "does not heed the masks it is given"
        )
        self.token_id = token_id
        self.attempts = attempts


class MalformedAnswer(ModelError):
    """The model's answer broke the form that the request asked for; ``problem`` says how."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the model's answer is malformed: {problem}")
        self.problem = problem


class InvalidRequest(FerrumError):
    """The caller's request is wrong; ``param`` names the offending field when there is one."""

    def __init__(self, problem: str, param: str | None = None) -> None:
        super().__init__(f"{param}: {problem}" if param else problem)
        self.problem = problem
        self.param = param


class ContextLengthExceeded(InvalidRequest):
    """``input_tokens + output_tokens`` does not fit ``capacity`` tokens."""

    def __init__(self, capacity: int, input_tokens: int, output_tokens: int) -> None:
        super().__init__(
            f"the context holds {capacity} tokens, but the prompt has {input_tokens} "
            f"and {output_tokens} more were asked for; shorten the prompt or lower max_tokens",
            param="max_tokens" if input_tokens < capacity else "prompt",
        )
        self.capacity = capacity
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens


class ChatTemplateError(InvalidRequest):
    """No chat template, or the template refused these messages (``problem`` is its own text)."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, param="messages")


class InvalidConstraint(InvalidRequest):
    """What was said of the answer is wrong or cannot be enforced: ``keyword`` of the JSON Schema at
    ``pointer`` (RFC 6901, "" = the whole schema), where it is a schema's.
    """

    def __init__(self, problem: str, keyword: str | None = None, pointer: str | None = None) -> None:
        place = "" if pointer is None else f" at {pointer or 'the top of the schema'}"
        subject = f"{keyword!r}{place} " if keyword is not None else f"{place.lstrip()}: " if place else ""
        super().__init__(f"{subject}{problem}", param="constraint")
        self.reason = problem
        self.keyword = keyword
        self.pointer = pointer


class ConstraintTooComplex(InvalidRequest):
    """Enforcing the constraint takes more than one request may: ``limit`` says of what."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"is too complex: {limit}; make it simpler", param="constraint")
        self.limit = limit


class DuplicateRequest(InvalidRequest):
    """A request with this id is active already."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request {request_id!r} is already active", param="request_id")
        self.request_id = request_id


class PrefixPinnedAlready(InvalidRequest):
    """A prefix is pinned under this ``name``."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is pinned already; unpin it first", param="name")
        self.name = name


class BrokenConstraint(FerrumError):
    """The answer of ``request_id`` ended and is not what its constraint says; ``problem`` is the reason."""

    def __init__(self, request_id: str, problem: str) -> None:
        super().__init__(f"the answer of {request_id!r} does not fulfil its constraint: {problem}")
        self.request_id = request_id
        self.problem = problem


class AnswerCutByStop(BrokenConstraint):
    """The stop string ``stop`` of the request ended a JSON value before it was whole: two wishes at odds."""

    def __init__(self, request_id: str, stop: str, problem: str) -> None:
        super().__init__(request_id, f"the stop string {stop!r} cut it: {problem}")
        self.stop = stop


class QueueFull(FerrumError):
    """The waiting queue holds its limit of ``unit`` (requests or tokens); refused without work."""

    def __init__(self, waiting: int, limit: int, retry_after_s: float, unit: str = "requests") -> None:
        super().__init__(f"queue is full: {waiting} {unit} wait and the limit is {limit}; retry later")
        self.unit = unit
        self.waiting = waiting
        self.limit = limit
        self.retry_after_s = retry_after_s


class DeadlineExceeded(FerrumError):
    """``timeout_s`` seconds after it arrived the request had no token yet; it holds nothing any more."""

    def __init__(self, request_id: str, timeout_s: float) -> None:
        super().__init__(
            f"request {request_id!r} had no token {timeout_s:g} s after it arrived (timeout_s); "
            "allow it more time, or try when fewer requests wait"
        )
        self.request_id = request_id
        self.timeout_s = timeout_s


class ResourceExhausted(FerrumError):
    """A finite resource ran out: ``needed`` units of ``resource`` with ``available`` left."""

    def __init__(self, resource: str, needed: int, available: int, advice: str = "") -> None:
        super().__init__(
            f"{resource}: {needed} needed, {available} available{'; ' + advice if advice else ''}"
        )
        self.resource = resource
        self.needed = needed
        self.available = available
        self.advice = advice


class UnusableSavedPrefix(FerrumError):
    """The file at ``path`` cannot be read, is damaged, or was saved by another model."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class PrefixNotSaved(UnusableSavedPrefix):
    """The file at ``path`` cannot be written."""


class UnusableBundle(FerrumError):
    """The replay bundle in the folder ``path`` cannot be used: ``file`` in it is missing or wrong."""

    def __init__(self, path: str, file: str, problem: str) -> None:
        super().__init__(f"{path}: {file} {problem}")
        self.path = path
        self.file = file
        self.problem = problem


class EngineClosed(FerrumError):
    """The engine takes no new requests: it is shutting down, closed, or another process owns it."""

    def __init__(self, problem: str = "is shutting down and takes no new requests") -> None:
        super().__init__(f"the engine {problem}")
        self.problem = problem


class EngineStalled(FerrumError):
    """The engine has had work for ``seconds`` and made no step; whoever waits for it is told by this."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the engine has work and has made no step for {seconds:.0f} s; restart it")
        self.seconds = seconds


class RequestCancelled(FerrumError):
    """The request ended because its caller cancelled it or went away."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request {request_id!r} was cancelled")
        self.request_id = request_id


class InternalError(FerrumError):
    """A bug of ours, reported instead of hidden."""


class AlreadyExists(InternalError):
    """``owner`` asked for a ``resource`` that it may hold once and holds already."""

    def __init__(self, resource: str, owner: str) -> None:
        super().__init__(f"{owner} already has a {resource}")
        self.resource = resource
        self.owner = owner
