"""Whether and how an engine is to speculate, and the drafter that does it."""

from __future__ import annotations

from dataclasses import replace

from ferrum.assembly.component_config import ComponentConfig
from ferrum.assembly.draft_model import DRAFT_OPTION
from ferrum.assembly.model_loading import PlanModel
from ferrum.assembly.model_sources import DefinedModel
from ferrum.cache.block_pool import DRAFT_KV_BLOCK, BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.core.drafting import Drafter
from ferrum.core.errors import InvalidConfig
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod
from ferrum.execution.executor import Executor
from ferrum.execution.plan_executor import PlanExecutor
from ferrum.execution.speculation.model_drafter import ModelDrafter
from ferrum.execution.speculation.ngram_drafter import NgramDrafter

COUNT_OPTION = "spec_n"


def read_speculation(components: ComponentConfig) -> SpeculationConfig:
    """The configuration's choice, over which a draft model and a count among the options win.

    Raises InvalidConfig for fewer than one token.
    """
    config = components.engine.speculation
    model = components.get_string_option(DRAFT_OPTION) or config.draft_model
    count = components.get_option(COUNT_OPTION, int)
    if count is not None and count < 1:
        raise InvalidConfig(COUNT_OPTION, f"must be at least 1, not {count}")
    method = config.method if model is None else SpeculationMethod.DRAFT
    num_tokens = config.num_tokens if count is None else count
    return replace(config, method=method, draft_model=model, num_tokens=num_tokens)


def require_room_for_drafts(defined: DefinedModel, wanted: SpeculationConfig) -> None:
    """Raises InvalidConfig when a model was not loaded for the speculation that is ``wanted``."""
    if wanted.is_on and wanted != defined.sources.options.engine.speculation:
        raise InvalidConfig(
            "speculation",
            "the model was loaded for another choice and keeps no room for these drafts; load it with the "
            "same configuration",
        )


def make_drafter(components: ComponentConfig, executor: Executor) -> Drafter | None:
    """What drafts for ``executor``; None without speculation.

    Raises InvalidConfig where drafted tokens could not be verified: with an executor whose results depend on
    how a sequence is cut into steps, or that cannot take a step back.
    """
    speculation = components.engine.speculation
    if not speculation.is_on:
        return None
    if not executor.keeps_same_tokens_law:
        raise InvalidConfig(
            "speculation",
            "this executor's results depend on how many tokens a step computes, so drafted tokens could "
            "change an answer; leave speculation out, or use the executor 'llm'",
        )
    if executor.capacity.recurrent_state_bytes:
        raise InvalidConfig(
            "speculation", "a recurrent state cannot be taken back behind a wrong draft; leave it out"
        )
    if speculation.method is SpeculationMethod.NGRAM:
        return NgramDrafter()
    model = components.model
    if not isinstance(model, PlanModel) or model.draft is None:
        raise InvalidConfig(
            DRAFT_OPTION,
            "a draft model is loaded together with the model it drafts for, and this one was not",
        )
    draft = model.draft
    capacity = executor.capacity
    return ModelDrafter(
        PlanExecutor(draft.runtime, draft.resolved_plan),
        CacheManager(
            BlockPool(draft.runtime.num_blocks, components.ledger, DRAFT_KV_BLOCK), draft.runtime.block_tokens
        ),
        capacity.vocabulary_size,
        draft.step_tokens,
    )
