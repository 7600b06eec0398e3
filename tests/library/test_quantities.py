"""Quantities with their units and periods, and which of them can be compared."""

import pytest

from localctx.library.wording.quantities import compare, has_other_period, read_quantities


def read(text: str, language: str = "en") -> list[tuple]:
    return [(q.kind, q.number, q.unit, q.period) for q in read_quantities(text, language)]


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("a rent of 950 euros a month, by the third working day", "en", [("money", 950, "EUR", "month")]),
        ("The monthly rent is EUR 880.", "en", [("money", 880, "EUR", "month")]),
        ("£500 p.m.", "en", [("money", 500, "GBP", "month")]),
        ("pay $50 by 5 p.m.", "en", [("money", 50, "USD", ""), ("number", 5, "p", "")]),
        ("300 euros for a weekend", "en", [("money", 300, "EUR", "")]),
        ("$30 an hour", "en", [("money", 30, "USD", "hour")]),
        ("The annual rent is 12,000 euros, payable in monthly instalments.", "en", [("money", 12000, "EUR", None)]),
        (
            "950 euros per month and a deposit of 1,900 euros",
            "en",
            [("money", 950, "EUR", "month"), ("money", 1900, "EUR", "")],
        ),
        ("900 to 950 euros", "en", [("money", 900, "EUR", ""), ("money", 950, "EUR", "")]),
        ("Die jährliche Vergütung beträgt 19.200 Euro.", "de", [("money", 19200, "EUR", "year")]),
        ("un loyer mensuel de 950 €", "fr", [("money", 950, "EUR", "month")]),
        ("una renta de 950 euros al mes", "es", [("money", 950, "EUR", "month")]),
        ("租金为每月950元", "zh", [("money", 950, "CNY", "month")]),
        ("US$500 or A$ 500", "en", [("money", 500, "USD", ""), ("money", 500, "A$", "")]),
        ("4.2 million euros", "en", [("money", 4200000, "EUR", "")]),
        ("three (3) months", "en", [("duration", 3, "month", "")]),
        ("a month's notice", "en", [("duration", 1, "month", "")]),
        ("1,500 days", "en", [("duration", 1500, "day", "")]),
        ("1.5 years", "en", [("duration", 1.5, "year", "")]),
        ("24 to 36 months", "en", [("duration", 24, "month", ""), ("duration", 36, "month", "")]),
        ("one hundred and twenty days", "en", []),
        ("vingt et un mois", "fr", []),
        ("treinta y un días", "es", []),
        ("10 working days", "en", [("duration", 10, "working day", "")]),
        ("sechs Wochen zum Monatsende", "de", [("duration", 6, "week", "")]),
        ("租期十二个月", "zh", [("duration", 12, "month", "")]),
        ("十三个月", "zh", []),
        ("in 2024年", "zh", [("number", 2024, "年", "")]),
        ("64 square metres and 5 %", "en", [("number", 64, "m²", ""), ("number", 5, "%", "")]),
        ("45 employees", "en", [("number", 45, "employ", "")]),
        ("on 1 March 2024", "en", [("date", 738946, "", "")]),
    ],
)
def test_quantities_are_read_with_unit_and_period(text, language, expected):
    assert read(text, language) == expected


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ("950 euros a month", "EUR 880 per month", 1),
        ("950 euros", "EUR 950", 0),
        ("950 euros a month", "12,000 euros a year", None),
        ("950 euros a month", "950 euros", None),
        ("950 euros", "950 dollars", None),
        ("$950", "CA$950", None),
        ("six weeks", "three months", -1),
        ("four weeks", "one month", None),
        ("14 days", "two weeks", 0),
        ("12 months", "one year", 0),
        ("10 working days", "two weeks", None),
        ("1 March 2024", "3 February 2025", -1),
        ("1 March 2024", "24 months", None),
        ("64 square metres", "71 m²", -1),
        ("45 employees", "50 rooms", None),
    ],
)
def test_only_what_is_safe_is_compared(a, b, result):
    (first,), (second,) = read_quantities(a, "en"), read_quantities(b, "en")
    assert compare(first, second) == result


@pytest.mark.parametrize(
    ("question", "answer", "cited", "other"),
    [
        ("What is the yearly rent?", "£1,150", "The monthly rent is £1,150.", True),
        ("How much is it per year?", "£1,150", "The rent is £1,150 per month.", True),
        ("What is the monthly rent?", "£1,150", "The monthly rent is £1,150.", False),
        ("What is the rent?", "£1,150", "The monthly rent is £1,150.", False),  # no period is asked for
        ("What is the yearly rent?", "£1,150", "The rent is £1,150.", False),  # none is given
        ("What is the yearly rent?", "£1,150 a month", "The monthly rent is £1,150.", False),  # the answer says it
        ("What is the yearly rent?", "2 persons", "The monthly rent is £1,150.", False),
    ],
)
def test_an_amount_for_another_period_than_asked_for(question, answer, cited, other):
    assert has_other_period(question, answer, cited, "en") is other
