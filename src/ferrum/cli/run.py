"""``ferrum run``: chat with a model at the terminal, or one question and one answer."""

from __future__ import annotations

import sys
from dataclasses import replace
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
from ferrum.cli.sampling_options import takes_sampling_options
from ferrum.cli.speculation_options import (
    DraftOption,
    DraftTokensOption,
    SpeculateOption,
    speculation_config,
)
from ferrum.cli.streams import argument_text
from ferrum.core.errors import InvalidConfig
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.token_policy_level import TokenPolicyLevel


@takes_sampling_options
def run(
    sampling: SamplingParams,
    model: ModelArgument,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="Answer this and exit. Text piped to stdin comes before it."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="No chat template: continue the text as it is.")] = False,
    system: Annotated[str | None, typer.Option("--system", help="System message of the chat.")] = None,
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
    if sampling.logprobs is not None and output_format is not OutputFormat.JSONL:
        raise InvalidConfig("--logprobs", "are shown with --output-format jsonl alone")
    sampling = replace(sampling, constraint=read_constraint(json_schema, grammar))
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
