"""What one document says: a value that a sentence about the subject holds, a text, nothing, or nothing sure."""

import pytest
from stored_documents import row

from localctx.library.citations.cite import cite_characters
from localctx.store.documents import StoredDocument
from localctx.workflows.comparing.comparing_question import comparing_question
from localctx.workflows.comparing.document_value import read_value


def value_of(question: str, text: str, answer: str, quote: str = "") -> tuple:
    asked, document = comparing_question(question, 2), StoredDocument(row("a.txt", text), text, [])
    assert asked is not None
    start = text.index(quote or text)
    read = read_value(asked, document, answer, [cite_characters(document, start, start + len(quote or text))])
    single = read.quantity and not read.several
    return read.state, read.text, (read.quantity.value, read.quantity.unit, read.quantity.period) if single else None


RENT, NOTICE = "Which lease has the lower rent?", "Which lease has the longer notice period?"
END, DEPOSIT = "Which lease ends later?", "Which lease has the higher deposit?"


@pytest.mark.parametrize(
    ("question", "text", "answer", "expected"),
    [
        (RENT, "The monthly rent is EUR 880.", "EUR 880", ("said", "EUR 880 a month", (880, "EUR", "month"))),
        (RENT, "The monthly rent is EUR 880.", "880", ("said", "EUR 880 a month", (880, "EUR", "month"))),
        (RENT, "The rent is agreed each year.", "agreed each year", ("said", "agreed each year", None)),
        (RENT, "The monthly rent is EUR 880.", "EUR 980", ("unsure", "", None)),
        (RENT, "The monthly rent is EUR 880.", "880 dollars", ("unsure", "", None)),
        (RENT, "The deposit is EUR 880.", "EUR 880", ("missing", "", None)),
        (
            RENT,
            "The rent is 950 euros and the deposit is 1,900 euros.",
            "950 euros",
            ("said", "950 euros", (950, "EUR", "")),
        ),
        (RENT, "The rent is 950 euros and the deposit is 1,900 euros.", "1,900 euros", ("unsure", "", None)),
        (RENT, "The rent is 950 euros, and 990 euros from May on.", "950 euros", ("said", "950 euros", None)),
        (RENT, "The rent is 900 to 950 euros.", "950 euros", ("said", "950 euros", None)),
        (
            NOTICE,
            "Either party may end the lease with three months' notice.",
            "three months",
            ("said", "three months", (3, "month", "")),
        ),
        (
            END,
            "It starts on 1 June 2024 and ends on 31 May 2025.",
            "31 May 2025",
            ("said", "31 May 2025", ("2025-05-31", "", "")),
        ),
        (END, "It starts on 1 June 2024 and ends on 31 May 2025.", "1 June 2024", ("unsure", "", None)),
        (END, "It starts on 1 June 2024.", "1 June 2024", ("missing", "", None)),
        (
            "Welcher Vertrag hat die längere Kündigungsfrist?",
            "Beide Parteien können mit einer Kündigungsfrist von drei Monaten kündigen.",
            "three Monaten",
            ("said", "drei Monaten", (3, "month", "")),
        ),
    ],
)
def test_a_value_must_be_in_a_sentence_about_the_subject(question, text, answer, expected):
    assert value_of(question, text, answer) == expected


def test_a_value_is_found_in_the_sentence_that_has_it_if_another_one_was_cited():
    text = "The lease begins in spring. The rent is EUR 880."
    assert value_of(RENT, text, "EUR 880", "The lease begins in spring.")[0] == "said"


@pytest.mark.parametrize("text", ["3. Rent. EUR 880 is due each month.", "Rent\nEUR 880 is due each month.\n"])
def test_a_label_says_what_the_sentence_after_it_is_about(text):
    assert value_of(RENT, text, "EUR 880", "EUR 880 is due each month.")[0] == "said"


def test_a_document_in_a_language_without_rules_is_not_said_to_be_silent():
    text = "Il canone mensile di locazione ammonta a 880 euro e deve essere pagato entro il giorno cinque di ogni mese."
    assert value_of(RENT, text, "880 euro")[0] == "unsure"
