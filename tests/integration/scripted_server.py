"""Run as a program: the real HTTP server over a real engine, with a scripted executor instead of a model."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.chat.template import ChatTemplate
from ferrum.cli.exit_on_stall import ExitOnStall
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.request import ChatPrompt
from ferrum.core.step import StepPlan
from ferrum.execution.executor import ExecutorCapacity
from ferrum.server.http_server import HttpServer
from ferrum.server.lifecycle import ServerLifecycle
from ferrum.server.listening_socket import bind_socket, socket_url
from ferrum.server.served_models import ServedModels
from ferrum.server.server_context import ServerContext
from ferrum.server.server_options import ServerOptions
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor

TEMPLATE = ChatTemplate(
    "{% for message in messages %}{{ message.role }}:{{ message.content }};{% endfor %}", {}
)


def encode_chat(prompt: ChatPrompt) -> Sequence[int]:
    return ByteTokenizer().encode(TEMPLATE.render(prompt.messages))


def break_down(plan: StepPlan, hang_at: str, die_at: str) -> None:
    ids = {token_id for part in plan.parts for token_id in part.token_ids}
    if hang_at and ord(hang_at) in ids:
        time.sleep(1e6)
    if die_at and ord(die_at) in ids:
        raise SystemExit


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency-s", type=float, default=0.001, help="duration of one step")
    parser.add_argument("--max-running", type=int, default=16)
    parser.add_argument("--max-waiting", type=int, default=64)
    parser.add_argument("--drain-s", type=float, default=30.0)
    parser.add_argument("--ping-s", type=float, default=5.0)
    parser.add_argument("--stall-s", type=float, default=120.0)
    parser.add_argument("--exit-on-stall", type=int, default=0)
    parser.add_argument("--hang-at", default="", help="a step whose prompt has this letter never ends")
    parser.add_argument("--die-at", default="", help="a step whose prompt has this letter ends the thread")
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    capacity = ExecutorCapacity(num_blocks=4096, block_tokens=16, context_length=2048, vocabulary_size=258)
    executor = ScriptedExecutor(
        capacity=capacity,
        latency_s=options.latency_s,
        before_step=lambda plan: break_down(plan, options.hang_at, options.die_at),
    )
    scheduler = SchedulerConfig(
        max_running_requests=options.max_running, max_waiting_requests=options.max_waiting
    )
    builder = (
        EngineBuilder(EngineConfig(scheduler=scheduler, stall_after_s=options.stall_s))
        .with_tokenizer(ByteTokenizer(), encode_chat)
        .with_executor(executor)
    )
    if options.exit_on_stall:
        builder.with_observer(ExitOnStall())
    engine = builder.build()
    context = ServerContext(
        engine,
        ServedModels(("tiny",), 1, capacity.context_length),
        ServerLifecycle(),
        ServerOptions(max_body_bytes=4_000_000, drain_s=options.drain_s, ping_interval_s=options.ping_s),
    )
    with bind_socket("127.0.0.1", 0) as bound:
        url = socket_url(bound)
        say = f"serving tiny at {url}/v1"
        HttpServer(context).run(bound, lambda: print(say, file=sys.stderr, flush=True))
    assert engine.status().num_used_kv_blocks == 0 or engine.death_reason is not None


if __name__ == "__main__":
    main()
