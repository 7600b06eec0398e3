"""The sources of each question of a chat: they are stored with its answer, and what others said is not asked again."""

from collections.abc import Iterator

import pytest
from ask_in_process import session

from localctx.engine.events import Done, Note
from localctx.errors import ChatError
from localctx.store.chats import SUMMARY, Message
from localctx.ui.answers.answer_card import UNREAD, CardContext, card
from localctx.workflows.chat.asked_sources import AskedSources
from localctx.workflows.chat.chat_history import history, messages_about

A, B = AskedSources({"a": "a.txt"}), AskedSources({"b": "b.txt"})
BOTH = AskedSources({"a": "a.txt", "b": "b.txt"})
LIBRARY, COLLECTION = AskedSources({}, library=True), AskedSources({"a": "a.txt"}, collection=7)


def talk(*asked: AskedSources | None, roles: str = "") -> list[Message]:
    """A question and an answer about each of the sources; "s" in ``roles`` makes it a summary."""
    messages = list[Message]()
    for i, sources in enumerate(asked):
        stats = sources.stats() if sources else {}
        role = SUMMARY if roles[i : i + 1] == "s" else "assistant"
        messages += [Message(2 * i, "c", None, "user", f"question {i}", [], {}, "", 0.0)] * (role != SUMMARY)
        messages.append(Message(2 * i + 1, "c", None, role, f"answer {i}", [], stats, "eos", 0.0))
    return messages


def left(messages: list[Message], sources: AskedSources) -> list[str]:
    return [m.text[-1] for m in messages_about(messages, sources) if m.role != "user"]


@pytest.mark.parametrize(
    ("sources", "kept"),
    [(A, "03"), (B, "13"), (BOTH, "0123"), (AskedSources({}), "3"), (LIBRARY, "012345"), (COLLECTION, "035")],
)
def test_only_answers_about_sources_that_are_still_asked_are_kept(sources, kept):
    messages = talk(A, B, BOTH, AskedSources({}), LIBRARY, COLLECTION)
    assert "".join(left(messages, sources)) == kept
    questions = [m.text[-1] for m in messages_about(messages, sources) if m.role == "user"]
    assert "".join(questions) == kept


def test_a_summary_counts_by_its_sources_or_by_what_it_stands_for():
    assert left(talk(A, None, B, roles="as"), B) == ["2"]
    assert left(talk(A, B, B, roles="as"), B) == ["1", "2"]
    assert left(talk(B, None, B, roles="as"), B) == ["0", "1", "2"]


def test_a_summary_replaces_only_answers_about_its_sources():
    exchanges = history(messages_about(talk(A, B, BOTH, B, A, roles="aaas"), BOTH))
    assert [answer for _, answer in exchanges] == ["answer 0", "answer 2", "answer 3", "answer 4"]


def test_an_answer_of_an_older_version_counts_by_its_citations():
    messages = talk(None, None)
    messages[1].citations.append({"document": "a"})
    assert left(messages, B) == ["1"]
    assert left(messages, A) == ["0", "1"]


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        (A, "I did not find this in a.txt."),
        (BOTH, "I did not find this in a.txt or b.txt."),
        (AskedSources({c: f"{c}.txt" for c in "abcd"}), "I did not find this in the 4 documents."),
        (LIBRARY, "I did not find this in the library."),
        (COLLECTION, "I did not find this in the collection."),
        (AskedSources({}), "I did not find this."),
        (None, "I did not find this."),
    ],
)
def test_a_card_names_what_was_asked(sources, told):
    message = Message(2, "c", 1, "assistant", "Not stated", [], sources.stats() if sources else {}, "eos", 0.0)
    assert told in card(message, CardContext(lambda _: None))


@pytest.mark.parametrize(
    ("sources", "question", "told"),
    [
        (AskedSources({}), "What is the rent?", True),
        (AskedSources({}), "Thank you!", False),
        (A, "What is the rent?", False),
        (LIBRARY, "What is the rent?", False),
        (None, "What is the rent?", False),  # stored by an older version
    ],
)
def test_a_card_says_that_no_document_was_read(sources, question, told):
    stats = sources.stats() if sources else {}
    message = Message(2, "c", 1, "assistant", "It is high.", [], stats, "eos", 0.0)
    assert (UNREAD in card(message, CardContext(lambda _: None), question=question)) is told


def test_a_continued_answer_rests_on_the_sources_of_both_its_parts():
    assert AskedSources.from_stats(B.stats(A.stats())) == BOTH


@pytest.fixture
def s(home, tiny_model) -> Iterator:
    with session(home, tiny_model, max_tokens=12) as s:
        yield s


def asked(s, chat: str, question: str) -> tuple[int, list[str]]:
    """The number of tokens of the prompt that asks the question in the chat, and the notes."""
    *events, done = s.run(s.workflows.chats.ask(chat, question))
    assert isinstance(done, Done)
    return done.report.tokens.prompt, [e.text for e in events if isinstance(e, Note)]


def test_what_an_unticked_document_said_is_not_in_the_prompt(s, tmp_path):
    chats, files = s.store.chats, [tmp_path / "report-a.txt", tmp_path / "report-b.txt"]
    for file in files:
        file.write_text(f"The {file.stem} counts herons.\n" * 9)
    chat = s.workflows.chats.start([str(file) for file in files]).id
    a, b = (d.id for d in chats.get(chat).documents)
    chats.set_documents(chat, [a])
    asked(s, chat, "How many herons?")
    chats.set_documents(chat, [b])
    tokens, notes = asked(s, chat, "How many herons?")
    alone = asked(s, chats.create("", [b]).id, "How many herons?")[0]
    assert tokens == alone
    assert any("unticked documents" in note for note in notes)
    chats.set_documents(chat, [a, b])
    tokens, notes = asked(s, chat, "How many storks?")
    assert tokens > alone + 9 * 30, "both are in the prompt again, with both earlier answers"
    assert notes == []
    sources = [AskedSources.from_stats(m.stats) for m in chats.messages(chat) if m.role == "assistant"]
    assert [list(one.documents) for one in sources] == [[a], [b], [a, b]]


def test_a_summary_of_a_chat_rests_on_its_ticked_documents(s, tmp_path):
    file = tmp_path / "report.txt"
    file.write_text("Herons fish here.\n" * 9)
    chat = s.workflows.chats.start([str(file)]).id
    asked(s, chat, "Who fishes?")
    document = s.store.chats.get(chat).documents[0].id
    list(s.run(s.workflows.chats.summarize(chat)))
    assert AskedSources.from_stats(s.store.chats.messages(chat)[-1].stats).documents == {document: "report.txt"}
    s.store.chats.set_documents(chat, [])
    with pytest.raises(ChatError, match="no answer of this chat is about the ticked documents"):
        list(s.run(s.workflows.chats.summarize(chat)))
