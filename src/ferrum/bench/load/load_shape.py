"""What a load consists of: prompts and the moments they are sent. Seeded, so that a run can be repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ferrum.core.errors import InvalidConfig

# Common short words: about a token each for most tokenizers.
_COMMON = (
    "time year people way day man thing woman life child world school state family student group country "
    "problem hand part place case week company system program question work number night point home water "
    "room mother area money story fact month lot right study book eye job word business issue side kind head "
    "house service friend father power hour game line end member law car city name team minute idea body "
    "back parent face level office door health person art war history party result change morning reason"
)
WORDS = tuple(_COMMON.split())


@dataclass(frozen=True, slots=True)
class LoadShape:
    """Prompts of ``prompt_words`` random words, each with its own beginning.

    With ``shared_prefix_words`` a prompt begins with one of ``num_prefixes`` long texts instead, which others
    begin with too, and its own words come after it.
    """

    num_requests: int
    prompt_words: int
    output_tokens: int
    seed: int
    shared_prefix_words: int = 0
    num_prefixes: int = 1

    def __post_init__(self) -> None:
        for name in ("num_requests", "prompt_words", "output_tokens", "num_prefixes"):
            if getattr(self, name) < 1:
                raise InvalidConfig(name, f"must be at least 1, not {getattr(self, name)}")
        if self.shared_prefix_words < 0:
            raise InvalidConfig("shared_prefix_words", f"must not be below 0, not {self.shared_prefix_words}")

    def prompts(self, num_warmups: int = 0) -> list[str]:
        """First ``num_warmups`` prompts that share nothing with the rest, then the load's own."""
        generator = random.Random(self.seed)
        warmups = [_text(generator, self.prompt_words) for _ in range(num_warmups)]
        if not self.shared_prefix_words:
            return warmups + [_text(generator, self.prompt_words) for _ in range(self.num_requests)]
        prefixes = [_text(generator, self.shared_prefix_words) for _ in range(self.num_prefixes)]
        own = [
            f"{generator.choice(prefixes)} {_text(generator, self.prompt_words)}"
            for _ in range(self.num_requests)
        ]
        return warmups + own

    def arrivals(self, rate: float) -> list[float]:
        """Seconds from the start at which each request is sent: a Poisson process of ``rate`` a second."""
        if rate <= 0:
            raise InvalidConfig("rate", f"must be above 0, not {rate:g}")
        # Apart from the prompts, so that the same prompts can be sent at another rate.
        generator = random.Random(f"arrivals {self.seed}")
        moments = []
        now = 0.0
        for _ in range(self.num_requests):
            now += generator.expovariate(rate)
            moments.append(now)
        return moments


def _text(generator: random.Random, num_words: int) -> str:
    """Begins with a number of six digits: no two prompts share their first tokens for long."""
    words = [str(generator.randrange(100_000, 1_000_000)), *generator.choices(WORDS, k=num_words - 1)]
    return " ".join(words)
