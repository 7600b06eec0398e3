"""The card of an answer that gives a value of each document."""

from localctx.document_parts import Citation
from localctx.library.citations.sentence_sources import AnswerSentence
from localctx.store.chats import Message
from localctx.ui.answers.answer_card import CardContext, card
from localctx.workflows.chat.asked_sources import AskedSources

A = "Pets may be kept only with consent."
B = "The rent is EUR 880 a month."


def shown(*lines: tuple[str, str, str], documents: str = "") -> str:
    """Returns the card of an answer of lines, each with the name and the words of its source, or "" for none.

    ``documents`` has a letter for each document that was asked.
    """
    text, sentences, citations = "", list[AnswerSentence](), list[Citation]()
    for line, name, quote in lines:
        start = len(text) + 1 if text else 0
        text += f"\n{line}" if text else line
        if quote:
            citations.append(Citation(f"id of {name}", name, None, None, 0, len(quote), quote, "words", 1.0))
        number = len(citations) if quote else None
        support = "supported" if quote else "unchecked"
        sentences.append(AnswerSentence(start, len(text), support, number, citations[-1] if quote else None))
    stats = {"mode": "compared", "sentences": [sentence.to_json() for sentence in sentences]}
    stats |= AskedSources({letter: letter for letter in documents}).stats()
    message = Message(2, "c", 1, "assistant", text, [c.to_json() for c in citations], stats, "eos", 0.0)
    return card(message, CardContext(lambda _: None))


def test_a_value_that_is_quoted_stands_once_in_its_quotation():
    html = shown((f"a.txt: {A}", "a.txt", A), ("b.txt: EUR 880.", "b.txt", B), ("Not found in c.txt.", "", ""))
    card_body, _ = html.split("</div>", 1)  # after it stand the actions, with the text to copy
    assert card_body.count(A.rstrip(".")) == 1
    assert "<strong>EUR 880</strong>" in html
    assert (
        html.index('<p class="lc-quiet">a.txt</p>') < html.index(A[:10]) < html.index('<p class="lc-quiet">b.txt</p>')
    )
    assert '<p class="lc-told">Not found in c.txt.</p>' in html


def test_other_values_stand_above_their_quotations():
    html = shown(
        ("a<b>.txt: Yes.", "a<b>.txt", A), ("Not found in c.txt.", "", ""), ("Lower: a<b>.txt.", "", ""), documents="ac"
    )
    assert html.index("a&lt;b&gt;.txt") < html.index('<p class="lc-value">Yes</p>') < html.index(A[:10])
    assert html.index('<p class="lc-value">Lower: a&lt;b&gt;.txt.</p>') < html.index('<p class="lc-value">Yes</p>')
    assert '<p class="lc-told">Not found in c.txt.</p>' in html


def test_a_table_of_several_subjects_is_shown_as_a_table():
    html = shown(("| | a.txt |", "", ""), ("|---|---|", "", ""), ("| Rent | EUR 880 |", "b.txt", B))
    assert "<table>" in html
    assert "lc-compared" not in html
