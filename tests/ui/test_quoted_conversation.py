"""A quoted answer in the conversation stands behind the sentence that it is from, as on the command line."""

import pytest
from ask_in_process import session

from localctx.ui.conversation import message_parts

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("answers", ["quote", "free"])
def test_an_answer_comes_after_the_sentence_it_is_from(home, sharp_model, document, answers):
    with session(home, sharp_model, mode="retrieve", answers=answers, max_tokens=6, dtype="f32") as s:
        chat = s.workflows.chats.start([str(document)]).id
        list(s.run(s.workflows.chats.ask(chat, "How long is river 7?")))
        message = s.store.chats.messages(chat)[-1]
        shown = next(message_parts(message, s.store))["content"]
    words = message.citations[0]["quote"]
    assert message.citations[0]["source"] == ("quote" if answers == "quote" else "passage")
    first = " ".join(shown.split("(")[0].split())
    assert " ".join(words.split()) in first
    assert first.rstrip("”")[-1] in ".!?" or answers == "free"
