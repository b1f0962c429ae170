"""``ferrum serve``: a model behind the OpenAI API."""

from __future__ import annotations

from typing import Annotated

import typer

from ferrum.cli.evidence_options import (
    BundleDirOption,
    BundleLimitOption,
    BundleRequestsOption,
    BundleTokenIdsOption,
    JournalLimitOption,
    ProfileDetailOption,
    ProfileOption,
    SchedulerTraceOption,
    evidence_config,
)
from ferrum.cli.lasting_objects import lasting_objects
from ferrum.cli.model_options import (
    ContextOption,
    ExecutorOption,
    KvDtypeOption,
    MemoryOption,
    ModelArgument,
    PrefixCacheOption,
    TemplateOption,
    ThreadsOption,
    TokenPolicyOption,
    read_size,
    read_template,
)
from ferrum.cli.pin_options import (
    AdminKeyOption,
    PinDirOption,
    PinDirSizeOption,
    RestorePinsOption,
    pin_settings,
)
from ferrum.cli.prefill_options import (
    DecodePrefillChunkOption,
    PrefillFirstOption,
    PrefillSettings,
    PrefillStepChunkOption,
)
from ferrum.cli.session_options import (
    MaxSessionsOption,
    SessionCacheOption,
    SessionStore,
    SessionTokensOption,
)
from ferrum.cli.speculation_options import (
    DraftOption,
    DraftTokensOption,
    SpeculateOption,
    speculation_config,
)
from ferrum.core.config import SchedulerConfig
from ferrum.core.evidence_config import (
    DEFAULT_BUNDLE_LIMIT,
    BundleOccasion,
    BundleTokenIds,
    Entrypoint,
    ProfileDetail,
)
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.scheduling_policy import SchedulingPolicy
from ferrum.core.token_policy_level import TokenPolicyLevel
from ferrum.environment import read_environment

_USUAL = SchedulerConfig()


def serve(
    model: ModelArgument,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0 = a free one.")] = 8000,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option("--served-model-name", help="Public name; repeat it.  [default: MODEL]"),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option("--max-num-seqs", help="Requests that share a step.  [default: 16, if memory allows]"),
    ] = None,
    max_waiting: Annotated[
        int, typer.Option("--max-waiting", help="Requests that may wait; more are refused with 429.")
    ] = 512,
    max_waiting_tokens: Annotated[
        int,
        typer.Option("--max-waiting-tokens", help="Tokens of all prompts that may wait; more are refused."),
    ] = _USUAL.max_waiting_tokens,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-num-batched-tokens", help="Most tokens in one step.  [default: 512, if memory allows]"
        ),
    ] = None,
    max_decode_stretch: Annotated[
        float,
        typer.Option(
            "--max-decode-stretch",
            help="How many times as long prompts may make the gap between others' tokens, as predicted.",
        ),
    ] = 4.0,
    prefill_first_until_active: PrefillFirstOption = _USUAL.prefill_first_until_active,
    prefill_step_chunk: PrefillStepChunkOption = _USUAL.prefill_step_chunk,
    active_decode_prefill_chunk: DecodePrefillChunkOption = _USUAL.active_decode_prefill_chunk,
    scheduling_policy: Annotated[
        SchedulingPolicy,
        typer.Option(
            "--scheduling-policy",
            help="Who is let in first: fcfs, as they came; priority, by the requests' field of that name.",
        ),
    ] = SchedulingPolicy.FCFS,
    fair_tenants: Annotated[
        bool,
        typer.Option("--fair-tenants", help="Equal shares for API keys, or for users where there is no key."),
    ] = False,
    stall_seconds: Annotated[
        float,
        typer.Option(
            "--stall-seconds", help="Time without a step, although there is work, that turns /health bad."
        ),
    ] = 120.0,
    exit_on_stall: Annotated[
        bool, typer.Option("--exit-on-stall", help="End the process then, with code 70.")
    ] = False,
    max_body_mib: Annotated[int, typer.Option("--max-body-mib", help="Largest request body, MiB.")] = 32,
    drain_seconds: Annotated[
        float, typer.Option("--drain-seconds", help="Time that running requests get after SIGTERM.")
    ] = 30.0,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin", help='Origin whose pages may call; repeat it; "*" = any.  [default: none]'
        ),
    ] = None,
    chat_template: TemplateOption = None,
    executor: ExecutorOption = "llm",
    threads: ThreadsOption = None,
    context_length: ContextOption = None,
    kv_dtype: KvDtypeOption = KvDtype.F16,
    token_policy: TokenPolicyOption = TokenPolicyLevel.VOCABULARY,
    memory: MemoryOption = None,
    prefix_cache: PrefixCacheOption = True,
    session_cache: SessionCacheOption = SessionStore.OFF,
    max_sessions: MaxSessionsOption = 128,
    session_tokens: SessionTokensOption = 4096,
    admin_key_file: AdminKeyOption = None,
    pin_dir: PinDirOption = None,
    pin_dir_size: PinDirSizeOption = None,
    restore_pins: RestorePinsOption = False,
    speculate: SpeculateOption = None,
    draft: DraftOption = None,
    draft_tokens: DraftTokensOption = None,
    debug_prefix_cache: Annotated[
        bool,
        typer.Option(
            "--debug-prefix-cache",
            help="Let requests ask, with explain_cache, why they missed; shows tokens of others' prompts.",
        ),
    ] = False,
    profile_jsonl: ProfileOption = None,
    scheduler_trace_jsonl: SchedulerTraceOption = None,
    profile_detail: ProfileDetailOption = ProfileDetail.STANDARD,
    journal_limit: JournalLimitOption = None,
    bundle_dir: BundleDirOption = None,
    bundle_requests: BundleRequestsOption = BundleOccasion.FAILED,
    bundle_token_ids: BundleTokenIdsOption = BundleTokenIds.KEPT,
    bundle_limit: BundleLimitOption = DEFAULT_BUNDLE_LIMIT,
) -> None:
    """Serve MODEL over HTTP: /v1/chat/completions, /v1/completions, /v1/models, /health, /ready, /metrics."""
    with lasting_objects():
        from ferrum.cli.serve_session import ServeSettings, serve_session

    serve_session(
        ServeSettings(
            model=model,
            executor=executor,
            host=host,
            port=port,
            names=tuple(served_model_name or ()),
            max_running=max_num_seqs,
            max_decode_stretch=max_decode_stretch,
            max_waiting=max_waiting,
            max_waiting_tokens=max_waiting_tokens,
            max_batched_tokens=max_num_batched_tokens,
            prefill=PrefillSettings(
                prefill_first_until_active, prefill_step_chunk, active_decode_prefill_chunk
            ),
            scheduling_policy=scheduling_policy,
            has_fair_tenants=fair_tenants,
            stall_after_s=stall_seconds,
            exits_on_stall=exit_on_stall,
            max_body_mib=max_body_mib,
            drain_s=drain_seconds,
            cors_origins=tuple(cors_origin or ()),
            template_source=read_template(chat_template),
            threads=threads,
            context_length=context_length,
            kv_dtype=kv_dtype,
            token_policy=token_policy,
            memory_bytes=read_size(memory),
            speculation=speculation_config(speculate, draft, draft_tokens),
            has_prefix_cache=prefix_cache,
            explains_cache=debug_prefix_cache,
            has_sessions=session_cache is SessionStore.MEMORY,
            max_sessions=max_sessions,
            session_tokens=session_tokens,
            pins=pin_settings(
                admin_key_file,
                read_environment().admin_key,
                pin_dir,
                pin_dir_size,
                restores=restore_pins,
                has_prefix_cache=prefix_cache,
            ),
            evidence=evidence_config(
                Entrypoint.SERVE,
                profile_jsonl,
                scheduler_trace_jsonl,
                profile_detail,
                bundle_dir,
                bundle_requests,
                bundle_token_ids,
                journal_limit,
                bundle_limit,
            ),
        )
    )
