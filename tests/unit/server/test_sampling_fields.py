"""How a client says how tokens are chosen: OpenAI's, vLLM's and llama.cpp's names, on both routes."""

from typing import Any

import pytest
from asgi_client import post
from scripted_engine import ScriptedEngine
from starlette.applications import Starlette

from ferrum.core.sampling_params import SamplingParams

ROUTES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/completions", {"prompt": "hi"}),
]
# Each with a value that is not its default, as it is sent and as it arrives.
FIELDS: dict[str, tuple[Any, Any]] = {
    "repetition_penalty": (1.25, 1.25),
    "presence_penalty": (-0.5, -0.5),
    "frequency_penalty": (2, 2.0),
    "repeat_last_n": (64, 64),
    "typical_p": (0.5, 0.5),
    "top_n_sigma": (1.5, 1.5),
    "xtc_probability": (0.5, 0.5),
    "xtc_threshold": (0.2, 0.2),
    "dry_multiplier": (0.8, 0.8),
    "dry_base": (2, 2.0),
    "dry_allowed_length": (3, 3),
    "dry_penalty_last_n": (512, 512),
    "dry_sequence_breakers": (["x"], ("x",)),
    "dynatemp_range": (0.25, 0.25),
    "dynatemp_exponent": (2, 2.0),
    "mirostat": (2, 2),
    "mirostat_tau": (3, 3.0),
    "mirostat_eta": (0.2, 0.2),
    "logit_bias": ({"5": -100, "007": 1.5}, {5: -100.0, 7: 1.5}),
    "allowed_token_ids": ([1, 2], (1, 2)),
    "bad_words": (["bad"], ("bad",)),
    "min_tokens": (2, 2),
}


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_every_field_reaches_the_engine_and_null_is_the_default(
    app: Starlette, engine: ScriptedEngine, path: str, content: dict[str, Any]
) -> None:
    await post(app, path, content | {name: sent for name, (sent, _) in FIELDS.items()})
    await post(app, path, content | dict.fromkeys(FIELDS))
    asked, default = (each.sampling for each in engine.requests)
    assert {name: getattr(asked, name) for name in FIELDS} == {
        name: kept for name, (_, kept) in FIELDS.items()
    }
    assert {name: getattr(default, name) for name in FIELDS} == {
        name: getattr(SamplingParams(), name) for name in FIELDS
    }


@pytest.mark.parametrize(("path", "content"), ROUTES)
async def test_llama_cpp_s_spellings_mean_the_same(
    app: Starlette, engine: ScriptedEngine, path: str, content: dict[str, Any]
) -> None:
    wishes = {"repeat_penalty": 1.5, "repeat_last_n": -1, "dry_penalty_last_n": -1}
    await post(app, path, content | wishes)
    sampling = engine.requests[0].sampling
    assert (sampling.repetition_penalty, sampling.repeat_last_n, sampling.dry_penalty_last_n) == (
        1.5,
        None,
        None,
    )
