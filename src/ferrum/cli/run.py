"""``ferrum run``: chat with a model at the terminal, or one question and one answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ferrum.cli.answer_output import OutputFormat
from ferrum.cli.constraint_options import read_constraint
from ferrum.cli.lasting_objects import lasting_objects
from ferrum.cli.model_options import (
    ContextOption,
    ExecutorOption,
    KvDtypeOption,
    MemoryOption,
    ModelArgument,
    TemplateOption,
    ThreadsOption,
    TokenPolicyOption,
    read_size,
    read_template,
)
from ferrum.cli.speculation_options import (
    DraftOption,
    DraftTokensOption,
    SpeculateOption,
    speculation_config,
)
from ferrum.cli.streams import argument_text
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.token_policy_level import TokenPolicyLevel


def run(
    model: ModelArgument,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="Answer this and exit. Text piped to stdin comes before it."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="No chat template: continue the text as it is.")] = False,
    system: Annotated[str | None, typer.Option("--system", help="System message of the chat.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Most tokens of an answer.")] = None,
    temperature: Annotated[
        float, typer.Option("--temperature", help="0 = always the likeliest token.")
    ] = 1.0,
    top_p: Annotated[
        float, typer.Option("--top-p", help="Likeliest tokens that reach this probability.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option("--top-k", help="The k likeliest tokens; 0 = all.")] = 0,
    min_p: Annotated[float, typer.Option("--min-p", help="Least share of the likeliest token.")] = 0.0,
    typical_p: Annotated[
        float, typer.Option("--typical-p", help="Most typical tokens that reach this probability.")
    ] = 1.0,
    repeat_penalty: Annotated[
        float,
        typer.Option(
            "--repeat-penalty", "--repetition-penalty", help="Against tokens of prompt and answer; 1 = none."
        ),
    ] = 1.0,
    repeat_last_n: Annotated[
        int | None, typer.Option("--repeat-last-n", help="Tokens that penalties look back over; -1 = all.")
    ] = None,
    presence_penalty: Annotated[
        float, typer.Option("--presence-penalty", help="Against tokens the answer has already.")
    ] = 0.0,
    frequency_penalty: Annotated[
        float, typer.Option("--frequency-penalty", help="Against them for each time it has them.")
    ] = 0.0,
    dry_multiplier: Annotated[
        float, typer.Option("--dry-multiplier", help="Against going on with a repetition; 0 = none.")
    ] = 0.0,
    mirostat: Annotated[
        int, typer.Option("--mirostat", help="2 = steer to a surprise of 5 bits; 0 = none.")
    ] = 0,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed gives the same answer.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", help="Text that ends an answer; repeat it.")
    ] = None,
    json_schema: Annotated[
        Path | None,
        typer.Option("--json-schema", help="File with a JSON Schema; an answer is a value of it."),
    ] = None,
    grammar: Annotated[
        Path | None,
        typer.Option("--grammar", help="File with a Lark or GBNF grammar; an answer is a sentence of it."),
    ] = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="text, or one JSON object a line.")
    ] = OutputFormat.TEXT,
    chat_template: TemplateOption = None,
    executor: ExecutorOption = "llm",
    threads: ThreadsOption = None,
    context_length: ContextOption = None,
    kv_dtype: KvDtypeOption = KvDtype.F16,
    token_policy: TokenPolicyOption = TokenPolicyLevel.VOCABULARY,
    memory: MemoryOption = None,
    speculate: SpeculateOption = None,
    draft: DraftOption = None,
    draft_tokens: DraftTokensOption = None,
) -> None:
    """Chat with MODEL. With --prompt, or text on stdin: answer once and exit. Only answers go to stdout."""
    sampling = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        repetition_penalty=repeat_penalty,
        repeat_last_n=None if repeat_last_n == -1 else repeat_last_n,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        dry_multiplier=dry_multiplier,
        mirostat=mirostat,
        seed=seed,
        stop=tuple(map(argument_text, stop or ())),
        constraint=read_constraint(json_schema, grammar),
    )
    with lasting_objects():
        from ferrum.cli.run_session import RunSettings, run_session

    settings = RunSettings(
        model=model,
        executor=executor,
        template_source=read_template(chat_template),
        threads=threads,
        context_length=context_length,
        kv_dtype=kv_dtype,
        token_policy=token_policy,
        memory_bytes=read_size(memory),
        speculation=speculation_config(speculate, draft, draft_tokens),
        sampling=sampling,
        system=None if system is None else argument_text(system),
        is_raw=raw,
        output_format=output_format,
    )
    text = None if prompt is None else argument_text(prompt)
    raise typer.Exit(run_session(settings, text, sys.stdout))
