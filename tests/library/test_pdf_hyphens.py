"""Hyphens at the ends of lines and pages: kept where they belong to the word, dropped where the word was divided."""

from collections.abc import Iterator
from functools import cache

import pytest
import spellchecker
from made_pdfs import drawn_pdf, lines
from test_pdf_order import text_of

from localctx.library.parsers.pdf.hyphens import Hyphenation, mark_hyphens
from localctx.library.parsers.pdf.pieces import LINE_HYPHEN

ENGLISH = "The members of the board have read the report of the year and it is with them that the money was."
GERMAN = "Der Mieter zahlt die monatliche Miete spätestens am dritten Werktag auf das Konto der Vermieterin."
FRENCH = "Le locataire paie le loyer tous les mois sur le compte du propriétaire, et il ne peut pas avoir de chien."


@pytest.fixture(autouse=True, scope="module")
def read_once() -> Iterator[None]:
    """The dictionary of a language is read once, not for each document."""
    checker = cache(spellchecker.SpellChecker)
    checker.languages = spellchecker.SpellChecker.languages  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spellchecker, "SpellChecker", checker)
        yield


def divided(before: str, after: str, language: str = ENGLISH, *, pages: bool = False) -> str:
    """The text of a document in which a line ends with ``before`` and the next begins with ``after``."""
    first, second = [language, f"We say {before}"], [f"{after} and so on."]
    return text_of(
        drawn_pdf([lines(50, 700, first), lines(50, 700, second)] if pages else [lines(50, 700, first + second)])
    )


KEPT = [
    ("AB-", "1234"),
    ("Brest-", "Litovsk"),
    ("long-", "term"),
    ("n-", "tridecanal"),
    ("XR-", "7"),
    ("price-", "determining"),
    ("vice-", "president"),
    ("Anne-", "Marie"),
    ("T-", "shirt"),
    ("10-", "15"),
    ("555-", "0199"),
    ("2024-", "05-17"),
    ("labour-", "saving"),
    ("WKST-", "TV"),
    ("self-", "esteem"),
]
JOINED = [
    ("cli-", "mate"),
    ("exam-", "ple"),
    ("informa-", "tion"),
    ("govern-", "ment"),
    ("tokeniza-", "tion"),
    ("MANAGE-", "MENT"),
    ("Commit-", "tee"),
]


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize(("before", "after"), KEPT)
def test_a_hyphen_of_the_word_is_kept(before, after, pages):
    assert f"We say {before}{after} and so on." in divided(before, after, pages=pages)


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize(("before", "after"), JOINED)
def test_a_divided_word_is_joined(before, after, pages):
    assert f"We say {before[:-1]}{after} and so on." in divided(before, after, pages=pages)


@pytest.mark.parametrize(
    ("before", "after", "language", "word"),
    [
        ("Ver-", "waltung", GERMAN, "Verwaltung"),
        ("Mietver-", "träge", GERMAN, "Mietverträge"),
        ("Straßen-", "bahn", GERMAN, "Straßenbahn"),
        ("Baden-", "Württemberg", GERMAN, "Baden-Württemberg"),
        ("E-", "Mail", GERMAN, "E-Mail"),
        ("Ein-", "und Ausgang", GERMAN, "Ein-\nund Ausgang"),
        ("gouverne-", "ment", FRENCH, "gouvernement"),
        ("développe-", "ment", FRENCH, "développement"),
        ("grand-", "mère", FRENCH, "grand-mère"),
        ("porte-", "avions", FRENCH, "porte-avions"),
    ],
)
def test_the_dictionary_is_that_of_the_documents_language(before, after, language, word):
    assert f"We say {word}" in divided(before, after, language)


@pytest.mark.parametrize(
    ("elsewhere", "word"),
    [("The zorbflange broke.", "zorbflange"), ("The zorb-flange broke.", "zorb-flange"), ("", "zorb-flange")],
)
def test_the_document_itself_decides_first(elsewhere, word):
    pages = [lines(50, 700, [ENGLISH, "Mend the zorb-", "flange soon."]), lines(50, 700, [f"{elsewhere} It is big."])]
    assert f"Mend the {word} soon." in text_of(drawn_pdf(pages)).replace(elsewhere or "\0", "")


def test_a_word_that_both_its_parts_are_is_joined_where_the_document_has_it():
    pages = [lines(50, 700, [ENGLISH, "They saw a water-", "mill."]), lines(50, 700, ["No other watermill is as old."])]
    assert "saw a watermill." in text_of(drawn_pdf(pages))


@pytest.mark.parametrize("shown", ["to -\n40 degrees", "Use --\nverbose here", "a dash -\nand more", "-\nitem"])
def test_other_hyphens_at_line_ends_stay(shown):
    assert shown in text_of(drawn_pdf([lines(50, 700, [ENGLISH, *shown.split("\n")])]))


@pytest.mark.parametrize(
    ("drawn", "read"), [("co\xadoperate", "cooperate"), ("AB\xad1234", "AB-1234"), ("end\xad of", "end of")]
)
def test_a_soft_hyphen_vanishes_unless_it_stands_between_parts_of_no_word(drawn, read):
    marked, _ = mark_hyphens(f"We {drawn} now.", [])
    assert Hyphenation([ENGLISH, marked]).resolve(marked, [])[0] == f"We {read} now."


def test_a_language_without_a_dictionary_keeps_its_hyphens():
    polish = (
        "Najemca płaci czynsz w wysokości siedmiuset złotych najpóźniej dziesiątego dnia każdego miesiąca na konto. "
    )
    text = f"{polish * 3}infor{LINE_HYPHEN}macja"
    assert Hyphenation([text]).resolve(text, [])[0].endswith("infor-macja")
