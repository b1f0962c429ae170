"""Run as a program: the real terminal chat over a real engine; its model repeats one text for ever."""

import argparse
import sys

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.cli.answer_output import OutputFormat, make_output
from ferrum.cli.conversation import ChatConversation
from ferrum.cli.run_session import chat_at_terminal
from ferrum.core.request import ChatPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.step import SamplingInstruction
from ferrum.execution.executor import ExecutorCapacity
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_executor import ScriptedExecutor

ANSWER = "日本語 🙂 é "


def encode_chat(prompt: ChatPrompt) -> list[int]:
    return ByteTokenizer().encode("".join(message["content"] + "\0" for message in prompt.messages))


def choose(request_id: str, history: tuple[int, ...], sampling: SamplingInstruction) -> int:
    """The next byte of ANSWER; the prompt ends with its last zero byte."""
    num_prompt_tokens = len(history) - history[::-1].index(0)
    answer = ANSWER.encode()
    return answer[(sampling.position - num_prompt_tokens) % len(answer)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency-s", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=len(ANSWER.encode()))
    parser.add_argument("--format", type=OutputFormat, default=OutputFormat.TEXT)
    options = parser.parse_args()
    capacity = ExecutorCapacity(num_blocks=512, block_tokens=16, context_length=8192, vocabulary_size=258)
    executor = ScriptedExecutor(choose=choose, capacity=capacity, latency_s=options.latency_s)
    engine = EngineBuilder().with_tokenizer(ByteTokenizer(), encode_chat).with_executor(executor).build()
    conversation = ChatConversation(
        system=None,
        count_tokens=lambda prompt: len(encode_chat(prompt)),
        capacity_tokens=capacity.context_length,
        reserve_tokens=options.max_tokens,
    )
    output = make_output(options.format, sys.stdout)
    sampling = SamplingParams(max_tokens=options.max_tokens, temperature=0)
    try:
        sys.exit(chat_at_terminal(conversation, engine, sampling, output, "scripted"))
    finally:
        engine.close(0.0)


if __name__ == "__main__":
    main()
