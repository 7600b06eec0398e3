"""What the chat page shows and keeps of a chat's documents: which they are, and how far they were read."""

from types import SimpleNamespace

import pytest
from chat_pages import build_chat_page
from clock import wait_until
from stored_documents import add, row

from localctx.ui.answers.conversation import StreamingAnswer
from localctx.ui.running.running_answers import RunningAnswer, TypedQuestion

pytestmark = pytest.mark.slow


@pytest.fixture
def page(window):
    return build_chat_page(window)


def ask(page, window, typed, chat, until):
    """Ask in the chat, and return the answer when it has ended."""
    shown = page._ask(
        {"text": "Why?", "files": typed}, chat, [], "", until, (chat, ()), SimpleNamespace(session_hash="tab")
    )
    answer = window.answers.of(shown[page.chat])
    wait_until(lambda: not answer.running)
    window.answers.note_shown(answer)
    return answer


def test_a_question_is_answered_from_as_much_as_the_field_says_and_the_chat_remembers_it(page, window, document):
    answered = ask(page, window, [str(document)], "", " 30% ")
    assert not answered.failed, answered.shown.status
    assert page._show_chat(answered.chat)[page.about.until].strip() == "30%"
    with window.store() as store:
        answer = store.chats.messages(answered.chat)[-1]
    assert answer.stats["until"]["mark"] == "30%"

    refused = ask(page, window, [], answered.chat, "page 7")
    assert refused.failed
    assert "“Read only up to” needs exactly one document, and 0 documents are asked" in refused.shown.status
    page.about.save(answered.chat, [], "", "", (answered.chat, ()))
    assert page._show_chat(answered.chat)[page.about.until] == ""


def test_a_chat_about_an_older_version_of_a_file_shows_and_keeps_it(page, window):
    with window.store() as store:
        for text in ("first", "second"):
            store.documents.add(row("log.txt", text, "/log.txt"), text, [])
        older = row("log.txt", "first").id
        chat = store.chats.create("", [older], {})
    shown = page._show_chat(chat.id)[page.about.documents]
    assert shown["value"] == [older]
    assert older in [id for _, id in shown["choices"]]
    assert older in [id for _, id in page.about._choices([older])["choices"]]


def test_a_question_whose_chat_is_deleted_while_it_is_answered_comes_back(page, window, document):
    typed = TypedQuestion("Why?", [], "tab")
    with window.store() as store:
        chat = store.chats.create("", [], {}).id
        answer = RunningAnswer(chat, StreamingAnswer(chat, []), typed)
        store.remove_chat(chat)
    shown = page.show_result(answer, typed)
    assert shown[page.unsent]["text"] == "Why?"
    assert shown[page.chat] == ""


def test_documents_that_another_chat_left_out_are_not_among_the_sources_of_a_new_one(page, window):
    with window.store() as store:
        lease, annex = add(store, "lease", "annex")
        chat = store.chats.create("", [lease, annex])
    about = page.about
    listed = about.show(chat)[about.listed]
    shown = about._list([annex], listed)
    assert shown[about.listed] == (chat.id, (lease, annex)), "whoever ticks it off may tick it again"
    listed = about.show(None)[about.listed]
    shown = about._list([annex], listed)
    assert "lease" not in shown[about.list]


def test_files_of_a_running_answer_are_listed_once_until_it_ends(page, window, monkeypatch):
    with window.store() as store:
        (lease,) = add(store, "lease.txt")
        chat = store.chats.create("", [lease])
    about = page.about
    monkeypatch.setattr(window.answers, "files_of", {chat.id: ["lease.txt", "annex.txt"]}.get)
    listed = about.show(chat)[about.listed]
    shown = about._list([], listed)[about.list]
    assert (shown.count(">annex.txt<"), shown.count(">lease.txt<")) == (1, 1)
    monkeypatch.setattr(window.answers, "files_of", lambda chat: [])
    assert "annex.txt" not in about._list([], listed)[about.list]
