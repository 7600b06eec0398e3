"""Values of each kind in a text, and the cells that answers become: filled only with what a quotation holds."""

import pytest

from localctx.batch.table.cells import cells_of
from localctx.batch.table.columns import TableColumn
from localctx.batch.table.values import day_comes_first, read_values

CHOICES = ("paid", "paid late")


@pytest.mark.parametrize(
    ("kind", "text", "language", "shown"),
    [
        ("text", " The  north wing. ", "en", ["The north wing"]),
        ("number", "-3 of 1,500.00 units", "en", ["-3", "1500"]),
        ("number", "1.500,75 Stück", "de", ["1500.75"]),
        ("money", "The rent is EUR 1.200,00 a month.", "en", ["1200.00 EUR"]),
        ("money", "920 euros", "en", ["920.00 EUR"]),
        ("money", "$1,200.50 and £30", "en", ["1200.50 USD", "30.00 GBP"]),
        ("money", "1 250,00 €", "fr", ["1250.00 EUR"]),
        ("money", "CHF 3'400", "de", ["3400.00 CHF"]),
        ("money", "1,200 of these, and later for 200 euros", "en", ["1200", "200.00 EUR"]),
        ("money", "about 12", "en", ["12"]),
        ("date", "on 4 March 2026 and on March 5, 2026", "en", ["2026-03-04", "2026-03-05"]),
        ("date", "am 1. Februar 2026", "de", ["2026-02-01"]),
        ("date", "le 3 mars 2025", "fr", ["2025-03-03"]),
        ("date", "2026年3月1日", "zh", ["2026-03-01"]),
        ("date", "01.02.2026", "en", ["2026-02-01"]),
        ("date", "23/04/2026", "en", ["2026-04-23"]),
        ("date", "04/23/2026", "en", ["2026-04-23"]),
        ("date", "21March 2026 or 1August2026", "en", ["2026-03-21", "2026-08-01"]),
        ("date", "clause 12 May apply 2026", "en", []),
        ("date", "03/04/2026", "en", []),
        ("date", "with four weeks' notice", "en", []),
        ("date", "in March", "en", []),
        ("yes/no", "Yes, with consent.", "en", ["yes"]),
        ("yes/no", "Nein, nur mit Zustimmung.", "de", ["no"]),
        ("yes/no", "可以", "zh", ["yes"]),
        ("yes/no", "No pets are allowed", "en", []),
        ("choice", "It was Paid late.", "en", ["paid late"]),
        ("choice", "It was prepaid.", "en", []),
        ("list", "apples, pears and plums", "en", ["apples; pears; plums"]),
        ("money", "a turnover of 4.2 million euros", "en", ["4200000.00 EUR"]),
        ("money", "€4.2m in all", "en", ["4200000.00 EUR"]),
        ("money", "4,2 Mio. Euro", "de", ["4200000.00 EUR"]),
        ("money", "USD 3 billion", "en", ["3000000000.00 USD"]),
        ("number", "1,5 Milliarden Menschen", "de", ["1500000000"]),
        ("number", "4.2 m of rope", "en", ["4.2"]),
        ("number", "120万人", "zh", ["1200000"]),
    ],
)
def test_values_are_read_in_one_form(kind, text, language, shown):
    assert [value.shown for value in read_values(kind, text, language, None, CHOICES)] == shown


def test_another_date_of_the_document_tells_whether_the_day_comes_first():
    assert day_comes_first("sent 28/02/2026, due 03/04/2026") is True
    assert day_comes_first("sent 02/28/2026, due 03/04/2026") is False
    assert day_comes_first("due 03/04/2026") is None
    assert [v.shown for v in read_values("date", "03/04/2026", "en", True)] == ["2026-04-03"]
    assert [v.shown for v in read_values("date", "03/04/2026", "en", False)] == ["2026-03-04"]


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
