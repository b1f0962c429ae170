from ferrum.cli.conversation import ChatConversation, RawConversation
from ferrum.core.request import ChatPrompt, Prompt, TextPrompt


def count_characters(prompt: ChatPrompt) -> int:
    return sum(len(message["content"]) for message in prompt.messages)


def conversation(capacity: int = 1000, reserve: int = 10, system: str | None = None) -> ChatConversation:
    return ChatConversation(
        system=system, count_tokens=count_characters, capacity_tokens=capacity, reserve_tokens=reserve
    )


def said(prompt: Prompt) -> list[str]:
    assert isinstance(prompt, ChatPrompt)
    return [f"{message['role']}: {message['content']}" for message in prompt.messages]


def test_every_question_carries_the_history_before_it() -> None:
    chat = conversation(system="be short")
    chat.ask("one")
    chat.record_answer("first")

    assert said(chat.ask("two").prompt) == ["system: be short", "user: one", "assistant: first", "user: two"]


def test_oldest_turns_make_room_and_are_counted() -> None:
    chat = conversation(capacity=60, reserve=10, system="sys")
    for index in range(2):
        assert chat.ask(f"question {index}").num_dropped_turns == 0
        chat.record_answer("answer....")

    assert chat.ask("question 2").num_dropped_turns == 1
    chat.record_answer("answer....")
    assert chat.ask("x" * 40).num_dropped_turns == 2
    chat.record_answer("")
    kept = said(chat.ask("six").prompt)
    assert kept[0] == "system: sys"
    assert kept[-1] == "user: six"


def test_newest_question_stays_even_when_it_is_too_long() -> None:
    chat = conversation(capacity=20, reserve=10)
    chat.ask("one")
    chat.record_answer("two")

    question = chat.ask("x" * 100)

    assert said(question.prompt) == ["user: " + "x" * 100]
    assert question.num_dropped_turns == 1


def test_question_without_answer_can_be_taken_back() -> None:
    chat = conversation()
    chat.ask("refused")
    chat.take_back()

    assert said(chat.ask("next").prompt) == ["user: next"]


def test_clear_forgets_everything_but_the_system_message() -> None:
    chat = conversation(system="sys")
    chat.ask("one")
    chat.record_answer("first")
    chat.clear()

    assert chat.num_turns == 0
    assert said(chat.ask("two").prompt) == ["system: sys", "user: two"]


def test_raw_text_has_no_history() -> None:
    raw = RawConversation()
    raw.ask("one")
    raw.record_answer("first")

    assert raw.ask("two").prompt == TextPrompt("two")
