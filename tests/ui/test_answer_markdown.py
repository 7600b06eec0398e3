"""Answers in Markdown: the number of a source stays at its sentence, also in tables."""

import pytest

from localctx.library.citations.sentence_sources import AnswerSentence
from localctx.ui.answers.markdown import answer_html


def html_of(sentences: list[tuple[str, str]]) -> str:
    """Return the HTML of an answer of sentences with their supports; a link shows where its sentence starts."""
    checked, at = [], 0
    for text, support in sentences:
        number = at + 1 if support == "supported" else None
        checked.append(AnswerSentence(at, at + len(text), support, number))
        at += len(text)
    return answer_html("".join(text for text, _ in sentences), checked, lambda sentence: f"[{sentence.start}]")


def test_a_number_follows_its_sentence():
    assert html_of([("It is red. ", "supported"), ("So am I.", "unchecked")]) == "<p>It is red. [0]So am I.</p>\n"


def test_a_sentence_without_support_is_dimmed():
    assert "lc-unsupported" in html_of([("It is red.", "unsupported")])


def test_a_sentence_that_ends_in_a_cell_adds_no_column():
    head = "| what | how much |\n|---|---|\n| Total | 700 |\n"
    html = html_of(
        [(head, "unchecked"), ("| Rent | The rent is 500. ", "unsupported"), ("It is due. |\n", "unchecked")]
    )
    assert "<td>Rent</td>" in html
    assert html.count("<td>") == 4


@pytest.mark.parametrize("rows", [["| Rent | 500 |\n"], ["| Rent | The rent is 500. ", "It is due. |\n"]])
def test_numbers_of_rows_stay_in_order(rows):
    head = "| what | how much |\n|---|---|\n"
    sentences = [(head + rows[0], "supported"), *((row, "supported") for row in rows[1:]), ("\nEnd.", "supported")]
    html = html_of(sentences)
    places = [html.index(f"[{sum(len(text) for text, _ in sentences[:i])}]") for i in range(len(sentences))]
    assert places == sorted(places)
    assert "500" in html[: places[0]], "the number is in the last cell"
