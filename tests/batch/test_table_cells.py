"""The cells that answers become: filled only with what a quotation holds."""

import pytest

from localctx.batch.table.cells import cells_of
from localctx.batch.table.columns import TableColumn


def citation(quote: str, page: str | None = "2") -> dict:
    place = {"document": "d", "name": "a.pdf", "page": page, "heading": None, "start": 10, "end": 10 + len(quote)}
    return {**place, "quote": quote, "source": "quote", "weight": 1.0}


def answered(text: str, *quotes: str, supported: str = "", confidence: float | None = 0.9) -> dict:
    source = {"start": 0, "end": len(text), "support": "supported", "number": 1, "source": citation(supported)}
    sentences = [source] if supported else []
    said = {"question": "What?", "answer": text, "mode": "full", "why": "", "answered": True}
    return {**said, "citations": [citation(q) for q in quotes], "sentences": sentences, "confidence": confidence}


def cell(column: TableColumn, answer: dict):
    (made,) = cells_of([column], {"answers": [answer]})
    return made


def test_a_value_that_a_quotation_holds_fills_its_cell_with_its_place():
    made = cell(TableColumn("rent", "What?", "money"), answered("EUR 1,200", "The rent is 1.200,00 euros a month."))
    assert (made.state, made.shown, made.value, made.unit) == ("found", "1200.00 EUR", 1200, "EUR")
    assert (made.quote, made.page, made.start) == ("The rent is 1.200,00 euros a month.", "2", 10)
    assert made.confidence == 0.9


def test_the_passage_that_supports_a_sentence_is_a_quotation_too():
    made = cell(
        TableColumn("by", "What?"), answered("Brandt Elektro GmbH", supported="We, Brandt  Elektro GmbH, deliver.")
    )
    assert (made.state, made.shown) == ("found", "Brandt Elektro GmbH")


@pytest.mark.parametrize(
    ("kind", "text", "quote"),
    [
        ("money", "EUR 1,300", "The rent is EUR 1,200."),
        ("money", "EUR 1,200", "The rent is £1,200."),
        ("money", "EUR 30", "It is paid within 30 days."),
        ("date", "4 March 2027", "It ends on 4 March 2026."),
        ("date", "in spring", "It ends in spring."),
        ("text", "Hart Ltd", "The tenant is Lucy Hart."),
        ("number", "12", "It has 12.5 rooms."),
        ("list", "apples and figs", "apples, pears and plums"),
    ],
)
def test_what_no_quotation_holds_leaves_the_cell_empty_and_says_the_answer(kind, text, quote):
    made = cell(TableColumn("c", "What?", kind), answered(text, quote))
    assert (made.state, made.shown, made.value, made.printed) == ("unsure", "", None, text)


def test_a_document_that_does_not_say_leaves_the_cell_empty():
    answer = {**answered("The document does not say."), "answered": False}
    assert cell(TableColumn("c", "What?"), answer).state == "missing"


def test_the_first_value_with_a_quotation_is_taken():
    made = cell(TableColumn("due", "What?", "date"), answered("1 May 2025 or 1 May 2026", "It is due on 1 May 2026."))
    assert made.shown == "2026-05-01"
