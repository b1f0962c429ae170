"""The offline door on a tiny random model, through the native runtime."""

import gc
import os
import signal
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ferrum
from ferrum import LLM, EngineConfig, SamplingParams
from ferrum.core.errors import ChatTemplateError, EngineClosed, InvalidConfig, InvalidRequest
from ferrum.core.request import TokenPrompt
from tiny_chat_model import write_tiny_chat_model

SAMPLING = SamplingParams(max_tokens=12, temperature=0.8, seed=5, ignore_eos=True)
PROMPTS = ["hello", "hello world", "user", "", "w" * 300]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_chat_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def llm(model_path: Path) -> Iterator[LLM]:
    with LLM(model_path, threads=1) as loaded:
        yield loaded


def test_prompts_run_together_with_the_tokens_they_get_alone(llm: LLM) -> None:
    together = llm.generate(PROMPTS[:3] + PROMPTS[4:], SAMPLING)
    alone = [llm.generate([prompt], SAMPLING)[0] for prompt in PROMPTS[:3] + PROMPTS[4:]]

    assert [result.token_ids for result in together] == [result.token_ids for result in alone]
    assert all(result.usage.completion_tokens == 12 for result in together)


def test_more_prompts_than_run_at_once_come_back_in_order(llm: LLM) -> None:
    prompts = [f"hello {index}" for index in range(40)]
    sampling = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)

    results = llm.generate(prompts, sampling)

    assert [result.usage.prompt_tokens for result in results] == [len(prompt) - 4 for prompt in prompts]


def test_every_prompt_may_have_its_own_sampling(llm: LLM) -> None:
    lengths = [SamplingParams(max_tokens=count, ignore_eos=True) for count in (1, 2, 3)]

    results = llm.generate(["hello"] * 3, lengths)

    assert [len(result.token_ids) for result in results] == [1, 2, 3]
    with pytest.raises(InvalidRequest, match="3 SamplingParams"):
        llm.generate(["hello"], lengths)


def test_one_text_and_token_ids_are_prompts_too(llm: LLM) -> None:
    greedy = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    by_text = llm.generate("hello", greedy)
    ids = [3, 4, 5]

    assert len(by_text) == 1
    assert (
        llm.generate(ids, greedy)[0].token_ids == llm.generate([TokenPrompt((3, 4, 5))], greedy)[0].token_ids
    )


def test_chat_renders_the_template_for_one_conversation_or_several(llm: LLM) -> None:
    hello = [{"role": "user", "content": "hello"}]
    world = [{"role": "user", "content": "world"}]
    greedy = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)

    [one] = llm.chat(hello, greedy)
    both = llm.chat([hello, world], greedy)

    assert both[0].token_ids == one.token_ids
    assert len(both) == 2
    assert one.usage.prompt_tokens > llm.generate("hello", greedy)[0].usage.prompt_tokens


def test_seed_reproduces_an_answer_and_a_missing_one_is_reported(llm: LLM) -> None:
    [first] = llm.generate("hello", SamplingParams(max_tokens=12, ignore_eos=True))
    [again] = llm.generate("hello", SamplingParams(max_tokens=12, ignore_eos=True, seed=first.seed))

    assert again.token_ids == first.token_ids


def test_bad_requests_raise_and_the_model_goes_on(llm: LLM) -> None:
    with pytest.raises(InvalidRequest):
        llm.generate("x" * 5000)
    with pytest.raises(InvalidRequest):
        llm.generate([[100_000]])
    with pytest.raises(InvalidRequest):
        llm.chat([{"role": "wizard", "content": "x"}])
    assert llm.generate("hello", SAMPLING)


def test_empty_list_gives_an_empty_list(llm: LLM) -> None:
    assert llm.generate([]) == []


def test_closed_model_refuses(model_path: Path) -> None:
    llm = LLM(model_path, threads=1)
    llm.close()
    llm.close()
    with pytest.raises(EngineClosed):
        llm.generate("hello")


def test_context_length_and_template_can_be_chosen(model_path: Path) -> None:
    config = EngineConfig(max_model_len=64)
    with LLM(model_path, threads=1, config=config, chat_template="{{ messages[0].content }}") as llm:
        [result] = llm.chat([{"role": "user", "content": "hello"}], SamplingParams(ignore_eos=True))
        assert result.usage.prompt_tokens + result.usage.completion_tokens == 64
    with pytest.raises(InvalidConfig, match="line 1"):
        LLM(model_path, threads=1, chat_template="{% if %}")
    with pytest.raises(InvalidConfig, match="context_length"):
        LLM(model_path, threads=1, config=EngineConfig(max_model_len=1_000_000))


def test_base_model_completes_but_does_not_chat(tmp_path: Path) -> None:
    path = write_tiny_chat_model(tmp_path / "base.gguf", template=None)
    with LLM(path, threads=1) as llm:
        assert llm.generate("hello", SAMPLING)
        with pytest.raises(ChatTemplateError):
            llm.chat([{"role": "user", "content": "hello"}])


@pytest.mark.parametrize(
    "prompts",
    [
        None,
        5,
        b"ids",
        {"a": 1},
        [None],
        [1.5],
        [True],
        [b"ids"],
        [[1.5]],
        [["a"]],
        [[True]],
        [TokenPrompt(("a",))],
    ],
)
def test_what_is_no_prompt_is_refused_by_its_place_and_type(llm: LLM, prompts: Any) -> None:
    with pytest.raises(InvalidRequest, match="prompts"):
        llm.generate(prompts, SAMPLING)


def test_iterators_and_numpy_ids_are_prompts_like_lists(llm: LLM) -> None:
    [by_ids] = llm.generate([3, 4, 5], SAMPLING)
    for ids in (np.array([3, 4, 5]), range(3, 6), iter([3, 4, 5]), [np.array([3, 4, 5])]):
        [result] = llm.generate(ids, SAMPLING)
        assert result.token_ids == by_ids.token_ids
    both = llm.generate((text for text in ("hello", "world")), SAMPLING)
    assert [each.token_ids for each in both] == [
        llm.generate(text, SAMPLING)[0].token_ids for text in ("hello", "world")
    ]


@pytest.mark.parametrize("sampling", [5, {"max_tokens": 1}, [None], [{"max_tokens": 1}]])
def test_what_is_no_sampling_is_refused(llm: LLM, sampling: Any) -> None:
    with pytest.raises(InvalidRequest, match="sampling"):
        llm.generate(["hello"], sampling)


@pytest.mark.parametrize("messages", [None, 5, "hello", {"role": "user", "content": "x"}, [5], ["hello"]])
def test_what_is_no_conversation_is_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises(InvalidRequest, match="messages"):
        llm.chat(messages, SAMPLING)
    with pytest.raises(InvalidRequest, match="template_kwargs"):
        llm.chat([{"role": "user", "content": "x"}], SAMPLING, template_kwargs=5)


def test_last_reference_gone_frees_the_model(model_path: Path) -> None:
    num_threads = threading.active_count()
    llm = LLM(model_path, threads=1)
    llm.generate("hello", SAMPLING)
    engine = weakref.ref(llm._engine)
    del llm
    gc.collect()
    assert engine() is None
    assert threading.active_count() == num_threads


def test_forked_copy_refuses_instead_of_waiting_for_threads_it_does_not_have(llm: LLM) -> None:
    llm.generate("hello", SAMPLING)
    with warnings.catch_warnings():
        # Newer Pythons warn of forking beside threads, which is the point here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            llm.generate("hello", SAMPLING)
        except EngineClosed as error:
            llm.close()
            os._exit(0 if "fork" in str(error) else 2)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert llm.generate("hello", SAMPLING)


def test_template_file_that_cannot_be_read_is_refused(model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes([255]))
    for name in ("missing", "binary"):
        with pytest.raises(InvalidConfig, match=name):
            LLM(model_path, chat_template=tmp_path / name)


def test_package_offers_its_names_and_no_others() -> None:
    assert set(dir(ferrum)) == set(ferrum.__all__)
    with pytest.raises(AttributeError):
        ferrum.no_such_name  # noqa: B018
