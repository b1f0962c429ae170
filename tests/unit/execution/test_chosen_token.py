"""A sampler of somebody else's is held to the masks it was given."""

import numpy as np
import pytest

from ferrum.core.arrays import FloatArray
from ferrum.core.errors import ForbiddenToken
from ferrum.core.step import SamplingInstruction
from ferrum.core.token_gate import full_mask, without_tokens
from ferrum.execution.chosen_token import MOST_ATTEMPTS, choose_with
from ferrum.sampling.reference_sampler import Choice


class HeedlessSampler:
    """The highest logit, whatever the mask says; ``insists`` on token 0."""

    def __init__(self, *, insists: bool = False) -> None:
        self.insists = insists
        self.num_calls = 0

    def choose(self, logits: FloatArray, sampling: SamplingInstruction) -> Choice:
        self.num_calls += 1
        return Choice(0 if self.insists else int(np.argmax(logits)), mirostat_mu=0.0)


def choose(sampler: HeedlessSampler, num_forbidden: int) -> int:
    """From logits that fall with the id, of which the first may not be chosen."""
    logits = np.arange(100, 0, -1, dtype=np.float32)
    before = logits.copy()
    instruction = SamplingInstruction(
        0.0, 0, 1.0, 0.0, 1, 1, mask=without_tokens(full_mask(100), range(num_forbidden))
    )
    token = choose_with(sampler, "a", logits, instruction)
    assert (logits == before).all()
    return token.token_id


@pytest.mark.parametrize("num_forbidden", [0, 1, MOST_ATTEMPTS - 1])
def test_a_token_that_is_not_allowed_is_taken_away_and_another_chosen(num_forbidden: int) -> None:
    sampler = HeedlessSampler()
    assert choose(sampler, num_forbidden) == num_forbidden
    assert sampler.num_calls == num_forbidden + 1


@pytest.mark.parametrize("insists", [False, True])
def test_after_64_attempts_it_is_an_error(insists: bool) -> None:
    assert MOST_ATTEMPTS == 64
    sampler = HeedlessSampler(insists=insists)
    with pytest.raises(ForbiddenToken, match="in each of 64 attempts"):
        choose(sampler, MOST_ATTEMPTS)
    assert sampler.num_calls == MOST_ATTEMPTS
