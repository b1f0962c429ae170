"""Run as a program: the real HTTP server over a real engine, with a scripted executor instead of a model."""

import argparse
import logging
import sys
from collections.abc import Sequence

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.chat.template import ChatTemplate
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.request import ChatPrompt
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency-s", type=float, default=0.001, help="duration of one step")
    parser.add_argument("--max-running", type=int, default=16)
    parser.add_argument("--max-waiting", type=int, default=64)
    parser.add_argument("--drain-s", type=float, default=30.0)
    parser.add_argument("--ping-s", type=float, default=5.0)
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    capacity = ExecutorCapacity(num_blocks=4096, block_tokens=16, context_length=2048, vocabulary_size=258)
    executor = ScriptedExecutor(capacity=capacity, latency_s=options.latency_s)
    scheduler = SchedulerConfig(
        max_running_requests=options.max_running, max_waiting_requests=options.max_waiting
    )
    engine = (
        EngineBuilder(EngineConfig(scheduler=scheduler))
        .with_tokenizer(ByteTokenizer(), encode_chat)
        .with_executor(executor)
        .build()
    )
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
    assert engine.status().num_used_kv_blocks == 0


if __name__ == "__main__":
    main()
