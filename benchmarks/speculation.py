"""How much sooner answers come with drafted tokens, and what drafting costs where there is nothing to copy.

    python benchmarks/speculation.py MODEL [--draft MODEL] [--threads N] [--tokens N] [--turns N]
        [--together N]

Each text is gone on with, speculation off and on in turns, and the fastest turn of each counts. The prompt is
computed before: what is measured is decoding. Tokens must be equal, or the script fails.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from ferrum import LLM, SamplingParams
from ferrum.core.config import EngineConfig
from ferrum.core.request import InferenceResult
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod

ARTICLE = """\
The harbour of Lindholm was built in 1874, when the railway reached the coast and the merchants of
the town wanted a place where ships of more than four hundred tons could load timber and grain. The
first pier, made of oak piles driven into the mud, stood for eleven years before a storm in the
winter of 1885 carried most of it away. The second pier was built of granite from the quarries at
Stenberga, and it still stands today. In 1902 the harbour handled more than two thousand ships, and
the customs house had to be enlarged twice. After the war the timber trade declined, and by 1931
only the fishing boats were left. The town council bought the harbour from the railway company in
1936 for the sum of one crown, and turned the warehouses into workshops."""

CODE = """def total_price(items, tax_rate):
    total = 0
    for item in items:
        total = total + item.price * item.quantity
    total = total + total * tax_rate
    return total


def average_price(items):
    if not items:
        return 0
    total = 0
    for item in items:
        total = total + item.price
    return total / len(items)


def cheapest(items):
    best = None
    for item in items:
        if best is None or item.price < best.price:
            best = item
    return best
"""


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt that the model goes on with. Drawn texts do not repeat themselves."""

    prompt: str
    temperature: float = 0.0


TEXTS = {
    "summary": Text(f"{ARTICLE}\n\nThe most important sentences of this article, word for word:\n\n"),
    "code": Text(f"# shop.py, before the change\n{CODE}\n# shop.py, with cheapest renamed to lowest\n"),
    "story": Text("The lighthouse keeper found a letter in a bottle. It said", temperature=1.0),
}


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer: seconds of time and of processors for each of its tokens."""

    token_s: float
    token_cpu_s: float
    results: list[InferenceResult]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--draft")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--together", type=int, default=1, help="requests at once, all of one text")
    arguments = parser.parse_args()
    method = SpeculationMethod.NGRAM if arguments.draft is None else SpeculationMethod.DRAFT
    choices = {"off": SpeculationConfig(), "on": SpeculationConfig(method, arguments.draft)}
    llms = {
        name: LLM(
            arguments.model,
            threads=arguments.threads,
            config=EngineConfig(max_model_len=2048, speculation=speculation),
        )
        for name, speculation in choices.items()
    }
    for name_of_text, text in TEXTS.items():
        turns: dict[str, list[Turn]] = {"off": [], "on": []}
        for _ in range(arguments.turns + 1):
            for name, llm in llms.items():
                turns[name].append(answer(llm, text, arguments.tokens, arguments.together))
        print(report(name_of_text, turns["off"], turns["on"]), flush=True)
    for llm in llms.values():
        llm.close()


def answer(llm: LLM, text: Text, num_tokens: int, together: int) -> Turn:
    prompts = [text.prompt] * together
    llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=1))
    sampling = [
        SamplingParams(temperature=text.temperature, max_tokens=num_tokens, seed=seed, ignore_eos=True)
        for seed in range(together)
    ]
    started, cpu_started = time.perf_counter(), time.process_time()
    results = llm.generate(prompts, sampling)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
    count = sum(len(result.token_ids) for result in results)
    return Turn(seconds / count, cpu_s / count, results)


def report(text: str, off: list[Turn], on: list[Turn]) -> str:
    for one, other in zip(off, on, strict=True):
        if [each.token_ids for each in one.results] != [each.token_ids for each in other.results]:
            raise SystemExit(f"{text}: speculation changed the tokens")
    # The first turn warms up.
    plain, drafted = (min(turns[1:], key=lambda turn: turn.token_s) for turns in (off, on))
    plain_cpu, drafted_cpu = (min(turn.token_cpu_s for turn in turns[1:]) for turns in (off, on))
    uses = [result.draft_use for result in on[-1].results]
    num_drafted, num_accepted = sum(use.drafted for use in uses), sum(use.accepted for use in uses)
    return (
        f"{text:8} off {1 / plain.token_s:6.1f}/s  on {1 / drafted.token_s:6.1f}/s "
        f"({plain.token_s / drafted.token_s:.2f} x)  CPU a token {plain_cpu * 1e3:.2f} ms, "
        f"{drafted_cpu * 1e3:.2f} ms ({drafted_cpu / plain_cpu - 1:+.1%})  "
        f"drafted {num_drafted}, right {num_accepted}"
    )


if __name__ == "__main__":
    main()
