"""The chat page's field that says how far the document was read."""

from types import SimpleNamespace

import gradio as gr
import pytest

from localctx.ui.chat_page import ChatPage


@pytest.fixture
def page(window):
    page = ChatPage(window)
    with gr.Blocks() as blocks:
        page.build()
        page.sidebar.build()
        page.wire(blocks)
    return page


def test_a_question_is_answered_from_as_much_as_the_field_says_and_the_chat_remembers_it(page, window, document):
    request = SimpleNamespace(session_hash="tab")
    shown = list(page._ask({"text": "Why?", "files": [str(document)]}, "", [], False, " 30% ", request))[-1]
    assert shown[page.about.until] == " 30% "
    with window.store() as store:
        (chat,) = store.chats.all()
        answer = store.chats.messages(chat.id)[-1]
    assert answer.stats["until"]["mark"] == "30%"
    shown = list(page._ask({"text": "Why?", "files": []}, chat.id, [], False, "page 7", request))[-1]
    assert "rivers.txt" not in str(shown[page.status])
    page.about._save(chat.id, [answer.citations[0]["document"]] if answer.citations else [], False, "")
    assert page._show_chat(chat.id)[page.about.until] == ""
