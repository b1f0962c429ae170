"""Whether and how an engine is to speculate, and the drafter that does it."""

from __future__ import annotations

from dataclasses import replace

from ferrum.assembly.component_config import ComponentConfig
from ferrum.core.drafting import Drafter
from ferrum.core.errors import InvalidConfig
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod
from ferrum.execution.executor import Executor
from ferrum.execution.speculation.ngram_drafter import NgramDrafter

DRAFT_OPTION = "spec_draft"
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
    raise InvalidConfig(DRAFT_OPTION, "not yet")
