"""A model argument to a running engine: what every door (run, serve, LLM) calls."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.assembly.model_loading import LoadedModel, LoadOptions, load_model
from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.core.ledger import LifecycleLedger
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.execution.plan_executor import PlanExecutor
from ferrum.runtimes.protocol import LogitsDetail
from ferrum.weights.progress_reporter import ProgressReporter


@dataclass(frozen=True, slots=True)
class RunningModel:
    """``engine`` owns the model's runtime: closing it frees the model."""

    model: LoadedModel
    engine: ContinuousBatchEngine


def start_model(argument: str, options: LoadOptions, reporter: ProgressReporter) -> RunningModel:
    """Loads ``argument`` and builds an engine over it, ready to answer.

    Raises ModelError, InvalidConfig or ResourceExhausted.
    """
    model = load_model(argument, options, reporter)
    detail = LogitsDetail.DIGEST if options.engine.logit_digests else LogitsDetail.NONE
    executor = PlanExecutor(model.runtime, model.resolved_plan, detail)
    ledger = LifecycleLedger()
    engine = ContinuousBatchEngine(
        config=options.engine,
        tokenizer=model.tokenizer,
        chat_encoder=None if model.chat_template is None else model.encode_chat,
        executor=executor,
        cache=CacheManager(BlockPool(executor.capacity.num_blocks, ledger), executor.capacity.block_tokens),
        ledger=ledger,
    )
    executor.prepare_startup()
    return RunningModel(model, engine)
