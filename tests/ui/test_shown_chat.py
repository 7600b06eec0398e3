"""What the chat page shows of stored chats, and what it does when a model cannot be loaded."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from chat_pages import build_chat_page
from gradio.context import LocalContext
from newer_versions import answer_in_chat, change
from stored_documents import add

from localctx.errors import ModelError
from localctx.library.add import add_document
from localctx.store.chats import Message
from localctx.ui.chat.shown_chat import ShownChat, first_shown
from localctx.workflows.chat.asked_sources import AskedSources

pytestmark = pytest.mark.slow

REQUEST = SimpleNamespace(session_hash="tab")


@pytest.fixture
def page(window):
    LocalContext.request.set(REQUEST)
    return build_chat_page(window)


@pytest.fixture
def no_model(window):
    """A function that makes the window use a model which is not there, and one that takes that back."""
    good = window.settings
    return lambda: window.change_settings(replace(good, model="/nowhere")), lambda: window.change_settings(good)


def ask(page, text: str, *files: str) -> dict:
    page._ask({"text": text, "files": list(files)}, "", [], "", "", ("", ()), REQUEST)
    return end(page)


def questions(shown: dict, page) -> list[str]:
    """The questions that are shown."""
    return re.findall(r'data-testid="user">(.*?)</div>', shown[page.conversation])


def end(page) -> dict:
    """What is shown at the end of the answer that was begun."""
    *_, shown = page._updates.follow(REQUEST)
    return shown


def test_a_question_that_no_model_answered_waits_in_its_chat_and_is_tried_again(page, window, no_model):
    break_it, mend_it = no_model
    break_it()
    shown = ask(page, "Why?")
    assert "nowhere" in shown[page.status]
    assert "Stopped." in shown[page.conversation]
    chat = shown[page.chat]
    mend_it()
    page._messages.again(page._starter.regenerate)(chat, "")
    shown = end(page)
    assert "value" not in shown[page.question], "what is being typed stays"
    with window.store() as store:
        assert [m.role for m in store.chats.messages(chat)] == ["user", "assistant"]


def test_what_no_chat_got_goes_back_into_the_box(page, tmp_path):
    missing = str(tmp_path / "gone.txt")
    shown = ask(page, "Why?", missing)
    assert "gone.txt" in shown[page.status]
    assert shown[page.unsent] == {"text": "Why?", "files": [missing]}


def test_an_unknown_model_is_not_saved(window, tmp_path, monkeypatch):
    monkeypatch.delenv("LOCALCTX_MODEL")
    before = window.settings
    (tmp_path / "notes.txt").write_text("no model")
    for name in ("smolm2", "owner/name", str(tmp_path), str(tmp_path / "notes.txt")):
        with pytest.raises(ModelError):
            window.save_settings({"model": name})
    assert window.settings == before
    window.save_settings({"temperature": 0.5})


def test_a_long_chat_is_shown_from_its_end_and_edited_where_it_is_shown(page, window):
    with window.store() as store:
        chat, last = store.chats.create("x").id, None
        for i in range(200):
            last = store.chats.append(chat, last, "assistant" if i % 2 else "user", f"{i}").id
        messages = store.chats.messages(chat)
    shown = page._show_chat(chat)
    assert (shown[page.hidden], questions(shown, page)[0]) == (170, "170")
    page._messages.edit(chat, "", str(messages[172].id), "another question")
    end(page)
    with window.store() as store:
        now = store.chats.messages(chat)
    assert [m.text for m in now[:172]] == [m.text for m in messages[:172]]
    assert now[172].text == "another question"
    shown = page._show_earlier(chat, 150)
    assert shown[page.hidden] < 60
    assert page._show_earlier(chat, 50)[page.hidden] == 0


def test_what_is_shown_begins_with_a_question():
    messages = [Message(i, "c", None, "assistant" if i % 2 else "user", "", [], {}, "", 0.0) for i in range(50)]
    assert first_shown(messages, 30) == 20
    assert first_shown(messages, 29) == 20
    assert first_shown(messages, 99) == 0
    assert first_shown([]) == 0


def test_an_answer_that_cites_what_has_changed_since_says_so(window, tmp_path):
    lease = tmp_path / "lease.txt"
    lease.write_text("The rent is EUR 1,200.\n\nPets are allowed.\n")
    with window.store() as store:
        document = add_document(store, str(lease)).id
        answers = [answer_in_chat(store, document, "?", q) for q in ("The rent is EUR 1,200.", "Pets are allowed.")]
        change(lease, {"1,200": "1,300"})
        shown = ShownChat(window)
        before = [shown.html(store.chats.messages(answer.chat), store) for answer in answers]
        add_document(store, str(lease))
        rent, pets = (shown.html(store.chats.messages(answer.chat), store) for answer in answers)
        change(lease, {"1,300": "1,200"})
        add_document(store, str(lease))
        held_again = shown.html(store.chats.messages(answers[0].chat), store)
    assert "No longer holds, because the file has changed: 1,200 -&gt; 1,300. Ask again" in rent
    assert not any("No longer holds" in html for html in (*before, pets, held_again))


def test_a_document_added_later_does_not_change_what_an_answer_says_was_asked(window):
    with window.store() as store:
        lease, annex = add(store, "lease.txt", "annex.txt")
        chat = store.chats.create("", [lease])
        asked = store.chats.append(chat.id, None, "user", "May I keep pets?").id
        stats = AskedSources.of(chat).stats()
        store.chats.append(chat.id, asked, "assistant", "Not stated", stats=stats, stopped="unanswered")
        store.chats.set_documents(chat.id, [lease, annex])
        shown = ShownChat(window).html(store.chats.messages(chat.id), store)
    assert "I did not find this in lease.txt." in shown
