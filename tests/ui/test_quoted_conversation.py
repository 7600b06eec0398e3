"""A quoted answer in the conversation stands with the whole sentence that it is from."""

import re

import pytest
from ask_in_process import session

from localctx.ui.answers.answer_card import CardContext, card

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("answers", ["quote", "free"])
def test_an_answer_comes_with_the_sentence_it_is_from(home, sharp_model, document, answers):
    with session(home, sharp_model, mode="retrieve", answers=answers, max_tokens=6, dtype="f32") as s:
        chat = s.workflows.chats.start([str(document)]).id
        list(s.run(s.workflows.chats.ask(chat, "How long is river 7?")))
        message = s.store.chats.messages(chat)[-1]
        shown = card(message, CardContext(s.store.documents.text))
    words = message.citations[0]["quote"]
    assert message.citations[0]["source"] == ("quote" if answers == "quote" else "passage")
    quoted = " ".join(re.sub("<.*?>", "", re.search("<blockquote>(.*?)</blockquote>", shown, re.DOTALL)[1]).split())
    assert " ".join(words.split()) in quoted
    assert quoted[-1] in ".!?" or answers == "free"
