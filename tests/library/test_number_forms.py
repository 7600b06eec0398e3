"""Numbers: amounts are compared by their value, versions, addresses and clauses as printed, parts of none ever."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.library.citations.sentence_sources import SupportFinder
from localctx.library.citations.source_index import SourceText
from localctx.library.wording.number_forms import NUMBER, number_at, number_form
from localctx.library.wording.words import in_spaces, split_words

NUMBERS = re.compile(NUMBER)
SEPARATORS = st.sampled_from([",", ".", "'", "\u2019", " ", "\u00a0", "\u202f"])
PARTS = st.lists(st.integers(0, 99), min_size=2, max_size=5)


def forms(text: str) -> list[str]:
    return [number_at(text, *found.span()) for found in NUMBERS.finditer(text)]


def grouped(value: int, separator: str) -> str:
    return f"{value:,}".replace(",", separator)


@pytest.mark.parametrize(
    "same",
    [
        ["1,500.00", "1500", "1500.00", "1.500,00", "1 500", "1'500", "1’500.00", "1\u202f500,00", "１５００"],  # noqa: RUF001
        ["1,500.50", "1.500,50", "1500,5", "1 500,50"],
        ["12,500,000", "12.500.000", "12 500 000", "12500000"],
        ["EUR 4.20", "4.2 €", "4,20 Euro", "CHF 4.2", "4.20 %"],
        ["2,5", "2.5"],
        ["600.00", "600"],
    ],
)
def test_an_amount_is_its_value_however_it_is_written(same):
    assert len({tuple(forms(number)) for number in same}) == 1, [forms(number) for number in same]
    assert all(len(forms(number)) == 1 for number in same)


@pytest.mark.parametrize(
    "different",
    [
        ["3.1", "3.10", "3.100", "31", "3"],
        ["4.2", "4.20", "42"],
        ["10.0.0.1", "10.0.0.10", "10.0.0.100"],
        ["05.10.2020", "05.10.202", "5.10.2020"],
        ["2024.1", "2024.10"],
        ["12", "112", "12.5", "125"],
        ["1500", "1500.5", "150", "15000"],
    ],
)
def test_versions_addresses_and_clauses_are_compared_as_printed(different):
    assert len({number_form(number) for number in different}) == len(different)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,2,3", ["1", "2", "3"]),
        ("600 700 800", ["600", "700", "800"]),
        ("Section 4.20. It", ["4.20"]),
        ("in 2024, 300 people", ["2024", "300"]),
        ("in 2024 300 people", ["2024", "300"]),
        ("at 12:30", ["12", "30"]),
    ],
)
def test_numbers_beside_each_other_stay_apart(text, found):
    assert forms(text) == found


@given(st.integers(0, 10**9), st.integers(0, 99), SEPARATORS)
def test_a_thousands_separator_changes_no_number(value, cents, separator):
    if separator == " " and re.fullmatch(r"\d{3} \d{3} \d.*", grouped(value, " ")):
        return  # may be numbers in a row
    point = "," if separator == "." else "."
    printed = grouped(value, separator)
    assert forms(f"it is {printed} in all") == [str(value)]
    if value >= 1000:
        decimals = f"{cents:02}".rstrip("0")
        assert forms(f"it is {printed}{point}{cents:02}") == [f"{value}.{decimals}".rstrip(".")]


@given(PARTS, PARTS)
def test_dotted_numbers_are_the_same_only_if_all_parts_are(one, other):
    first, second = (".".join(map(str, parts)) for parts in (one, other))
    assert (forms(first) == forms(second)) == (one == other)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_number_stands_in_a_text_only_as_a_whole(one, other):
    assert (in_spaces(str(one)) in in_spaces(f"It has {other} parts, v{other}, {other}.25 and {other}-fold.")) == (
        one == other
    )


@given(st.text("0123456789.,' \u202f€abc", max_size=30))
def test_every_digit_is_in_one_number(text):
    digits = "".join(text[slice(*found.span())] for found in NUMBERS.finditer(text))
    assert re.findall(r"\d", digits) == re.findall(r"\d", text)
    assert split_words(text) == split_words(text.upper())


MANUAL = (
    "The pump controller needs firmware version 3.10 and listens on the address 10.0.0.10 of the plant network. "
    "Section 4.20 of the manual describes the reset. The valve was replaced on 05.10.2020 by Petra Lund. The invoice "
    "of Egon Wirth is 1,500.00 crowns. The tank holds 2.500 litres."
)


@pytest.mark.parametrize(
    ("answer", "support"),
    [
        ("The pump controller needs firmware version 3.10.", "supported"),
        ("The pump controller needs firmware version 3.1.", "unsupported"),
        ("The controller listens on the address 10.0.0.10.", "supported"),
        ("The controller listens on the address 10.0.0.1.", "unsupported"),
        ("The controller listens on the address 10.0.0.100.", "unsupported"),
        ("Section 4.20 of the manual describes the reset.", "supported"),
        ("Section 4.2 of the manual describes the reset.", "unsupported"),
        ("The valve was replaced on 05.10.202 by Petra Lund.", "unsupported"),
        ("The invoice of Egon Wirth is 1500 crowns.", "supported"),
        ("The invoice of Egon Wirth is 1,500 crowns.", "supported"),
        ("The invoice of Egon Wirth is 1.500,00 crowns.", "supported"),
        ("The invoice of Egon Wirth is 150 crowns.", "unsupported"),
    ],
)
def test_a_sentence_is_supported_by_its_numbers_and_no_others(answer, support):
    (sentence,) = SupportFinder([SourceText("d", "manual.txt", 0, MANUAL)]).check(answer)
    assert sentence.support == support
