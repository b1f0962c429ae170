"""Tiny random models through the whole engine as transformers computes them, beside its own generate.

Run with the extra ``oracle``: ``pytest -m oracle tests/integration/test_transformers_models.py``.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_process import ServerProcess, server

from ferrum.assembly.default_components import default_registry
from ferrum.assembly.hugging_face_model import load_hugging_face_model, measure_cache
from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import RunningModel, start_model
from ferrum.core.config import EngineConfig, KvCacheConfig, SchedulerConfig
from ferrum.core.errors import UnsupportedModel
from ferrum.core.request import InferenceRequest, TokenPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.llm import LLM
from ferrum.runtimes.transformers_model import TransformersModel
from ferrum.weights.progress_reporter import SilentReporter
from hugging_face_folder import END_ID, VOCABULARY, write_tokenizer

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CONTEXT = 128
_COMMON = {"vocab_size": VOCABULARY, "bos_token_id": 257, "eos_token_id": END_ID, "pad_token_id": 256}
_ATTENTION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
}


def _llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_ATTENTION, **_COMMON))


def _half_llama() -> Any:
    return _llama().to(torch.bfloat16)


def _sliding_mistral() -> Any:
    return transformers.MistralForCausalLM(
        transformers.MistralConfig(sliding_window=16, **_ATTENTION, **_COMMON)
    )


def _gpt2() -> Any:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **_COMMON))


def _mamba() -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}
    return transformers.MambaForCausalLM(transformers.MambaConfig(**sizes, **_COMMON))


MODELS: dict[str, Callable[[], Any]] = {
    "llama": _llama,
    "llama in bfloat16": _half_llama,
    "sliding window": _sliding_mistral,
    "gpt2": _gpt2,
    "mamba": _mamba,
}


def _write(folder: Path, make: Callable[[], Any]) -> Path:
    torch.manual_seed(7)
    model = make()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8.0)  # As it is initialised a model hardly depends on its context.
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("model"), MODELS[request.param])


@pytest.fixture(scope="module")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("llama"), _llama)


def _options(folder: Path, config: EngineConfig | None = None) -> LoadOptions:
    return LoadOptions(
        threads=1, engine=config or EngineConfig(max_model_len=CONTEXT), cache_directory=folder / ".cache"
    )


@pytest.fixture
def running(folder: Path) -> Iterator[RunningModel]:
    running = start_model(str(folder), _options(folder), SilentReporter(), executor="transformers")
    yield running
    running.engine.close(0.0)
    ledger = running.engine.resources.kv_manager.ledger
    assert ledger.outstanding() == {}
    assert (ledger.num_open_owners, ledger.num_underflows, ledger.num_dropped_leases) == (0, 0, 0)


def _prompts(count: int) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(1)
    lengths = [3 + 5 * number for number in range(count)]
    return [tuple(torch.randint(0, 256, (length,), generator=generator).tolist()) for length in lengths]


def _requests(prompts: Sequence[tuple[int, ...]], num_tokens: int | None) -> list[InferenceRequest]:
    sampling = SamplingParams(temperature=0.0, max_tokens=num_tokens)
    return [InferenceRequest(f"r{i}", TokenPrompt(prompt), sampling) for i, prompt in enumerate(prompts)]


def _generated(folder: Path, prompt: tuple[int, ...], num_tokens: int) -> tuple[int, ...]:
    """transformers' own greedy answer."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    ids = torch.tensor([list(prompt)])
    options = {"max_new_tokens": num_tokens, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    return tuple(model.generate(ids, **options)[0, len(prompt) :].tolist())


def test_greedy_tokens_equal_generate(folder: Path, running: RunningModel) -> None:
    (prompt,) = _prompts(1)
    (result,) = running.engine.generate(_requests([prompt], 24))
    assert result.token_ids == _generated(folder, prompt, 24)
    assert len(set(result.token_ids)) > 1


def test_several_requests_together_equal_generate(folder: Path, running: RunningModel) -> None:
    prompts = _prompts(5)
    results = running.engine.generate(_requests(prompts, 12))
    assert [result.token_ids for result in results] == [_generated(folder, prompt, 12) for prompt in prompts]


async def test_a_cancelled_request_leaves_the_others_alone(folder: Path, running: RunningModel) -> None:
    leaving, staying = _requests(_prompts(2), 60)
    stream = await running.engine.open_stream(leaving)
    other = asyncio.create_task(running.engine.infer(staying))
    await anext(aiter(stream))
    running.engine.cancel(leaving.request_id)
    result = await other
    assert result.token_ids == _generated(folder, _prompts(2)[1], 60)
    async with stream:
        pass


def test_prompts_in_chunks_and_preemption_give_the_same_tokens(llama_folder: Path) -> None:
    scheduler = SchedulerConfig(prefill_step_chunk=7, expected_output_tokens=1)
    config = EngineConfig(max_model_len=CONTEXT, scheduler=scheduler, kv_cache=KvCacheConfig(num_blocks=8))
    options = _options(llama_folder, config)
    running = start_model(str(llama_folder), options, SilentReporter(), executor="transformers")
    prompts = _prompts(6)
    # Without a limit of its own a request is promised little room, and grows out of it.
    results = running.engine.generate(_requests(prompts, None))
    expected = [_generated(llama_folder, prompt, CONTEXT - len(prompt)) for prompt in prompts]
    assert [result.token_ids for result in results] == expected
    (preemptions,) = re.findall(r"^\S*preemptions_total ([0-9.]+)$", running.engine.metrics(), re.MULTILINE)
    assert float(preemptions) > 0
    running.engine.close()


def test_a_seed_gives_the_same_draws(llama_folder: Path) -> None:
    with LLM(llama_folder, executor="transformers", threads=1) as llm:
        sampling = SamplingParams(max_tokens=20, temperature=1.0, seed=11)
        (first,), (second,) = llm.generate("hello", sampling), llm.generate("hello", sampling)
        (other,) = llm.generate("hello", SamplingParams(max_tokens=20, temperature=1.0, seed=12))
    assert first.token_ids == second.token_ids != other.token_ids


def test_caches_are_measured_to_the_byte(llama_folder: Path) -> None:
    size = measure_cache(TransformersModel(llama_folder, 1))
    assert (size.token_bytes, size.state_bytes) == (
        2 * 2 * 2 * 8 * 4,
        0,
    )  # layers, K and V, heads, width, f32


def test_a_recurrent_model_has_a_state_and_nothing_that_grows(tmp_path: Path) -> None:
    model = load_hugging_face_model(str(_write(tmp_path, _mamba)), _options(tmp_path), SilentReporter())
    assert model.capacity.kv_bytes_per_token == 0
    assert model.capacity.recurrent_state_bytes > 0
    model.close()


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"model_type": "nonsense"}, "nonsense"),
        ({"model_type": "llama"}, "transformers cannot load it"),
        ({"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}, "transformers cannot load it"),
    ],
)
def test_what_transformers_cannot_load_is_one_line(
    llama_folder: Path, tmp_path: Path, config: dict[str, Any], problem: str
) -> None:
    for file in llama_folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text("raise SystemExit('code of the folder was run')")
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UnsupportedModel, match=problem) as caught:
        load_hugging_face_model(str(tmp_path), _options(tmp_path), SilentReporter())
    assert "\n" not in str(caught.value)


def test_run_answers_at_the_command_line(llama_folder: Path) -> None:
    arguments = ["run", str(llama_folder), "--executor", "transformers", "--raw", "--prompt", "hello"]
    more = ["--temperature", "0", "--max-tokens", "5", "--threads", "1", "--output-format", "jsonl"]
    run = subprocess.run(
        [sys.executable, "-m", "ferrum", *arguments, *more],
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )
    assert run.returncode == 0, run.stderr
    (answer,) = [
        event for event in map(json.loads, run.stdout.splitlines()) if event.get("event") == "assistant"
    ]
    assert answer["completion_tokens"] == 5


def test_serve_answers_several_clients_and_gives_everything_back(llama_folder: Path) -> None:
    command = [sys.executable, "-m", "ferrum", "serve", str(llama_folder), "--executor", "transformers"]
    with server([*command, "--port", "0", "--threads", "1"]) as running:
        body = {"model": llama_folder.name, "max_tokens": 8, "temperature": 0}
        prompts = [f"request {number}" for number in range(4)]
        with ThreadPoolExecutor(4) as clients:
            together = list(clients.map(lambda prompt: _complete(running, body, prompt), prompts))
        assert together == [_complete(running, body, prompt) for prompt in prompts]
        chat = {**body, "messages": [{"role": "user", "content": "hi"}]}
        assert httpx.post(f"{running.api}/chat/completions", json=chat, timeout=30).status_code == 200
        assert any("arithmetic: transformers" in line for line in running.lines)
        running.terminate()
        assert running.process.wait(30) == 0
    assert not any("resource leak" in line for line in running.lines)


def _complete(running: ServerProcess, body: dict[str, Any], prompt: str) -> str:
    answer = httpx.post(f"{running.api}/completions", json={**body, "prompt": prompt}, timeout=30)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_the_registry_names_it() -> None:
    assert default_registry().executors.get("transformers").metadata.name == "transformers"
