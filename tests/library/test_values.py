"""Values of each kind in a text, in one form."""

import pytest

from localctx.library.wording.values import day_comes_first, read_values

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
