"""Which draft model an engine is to speculate with. Reads the choice; knows nothing of how it is done."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.assembly.component_config import ComponentConfig
from ferrum.core.errors import InvalidConfig

DRAFT_OPTION = "spec_draft"
COUNT_OPTION = "spec_n"


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """A draft model that proposes ``num_tokens`` tokens a step; the target's kind of executor runs it."""

    model: str
    num_tokens: int
    executor: str


def read_draft(components: ComponentConfig, executor: str) -> DraftChoice | None:
    """The draft that the options name, else the configuration; None when there is none.

    Each option wins over the configuration's field of the same name. Raises InvalidConfig for fewer than one
    token.
    """
    config = components.engine
    model = components.get_string_option(DRAFT_OPTION) or config.spec_draft
    if model is None:
        return None
    count = components.get_option(COUNT_OPTION, int)
    num_tokens = config.spec_n if count is None else count
    if num_tokens < 1:
        raise InvalidConfig(COUNT_OPTION, f"must be at least 1, not {num_tokens}")
    return DraftChoice(model, num_tokens, executor)


def refuse_draft(draft: DraftChoice | None) -> None:
    """Raises InvalidConfig for any draft: nothing here can run one yet."""
    if draft is not None:
        raise InvalidConfig(
            DRAFT_OPTION, f"speculation with a draft model ({draft.model!r}) is not built yet; leave it out"
        )
