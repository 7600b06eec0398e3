"""Lines of PDFs in scripts that are written from the right, whatever way the file draws them."""

import pytest
from made_pdfs import HEBREW_FONT, at, drawn_pdf, in_hebrew

from localctx.library.parsers.pdf import read_pdf
from localctx.library.parsers.pdf.from_right import in_reading_order
from localctx.library.parsers.pdf.letters import Edges, Letter


def text_of(*drawn: str) -> str:
    made = drawn_pdf(["\n".join(drawn)], font=HEBREW_FONT)
    return read_pdf.read(made, lambda done, total: None, "off", lambda: None)[1].done()[0]


def leftward(right: float, text: str) -> str:
    """Letters that the file writes one after another from the right, as browsers do."""
    moved = " 1000 ".join(f"({letter})" for letter in text)
    return f"BT /F1 12 Tf 1 0 0 1 {right} 700 Tm [{moved}] TJ ET"


def test_letters_written_from_the_left_are_read_from_the_right():
    assert text_of(at(50, 700, "lkj 12.50 ihg fe dcba")) == in_hebrew("abcd ef ghi 12.50 jkl")


def test_letters_written_from_the_right_are_read_from_the_right():
    assert text_of(leftward(300, "abcd ef ghij")) == in_hebrew("abcd ef ghij")


def test_words_and_numbers_that_are_written_in_different_ways_are_in_order():
    drawn = leftward(300, "abcd"), at(252, 700, "gfe"), at(200, 700, "12.50"), leftward(180, "hijk")
    assert text_of(*drawn) == in_hebrew("abcd efg 12.50 hijk")


def test_a_phrase_in_a_line_of_latin_letters_is_read_from_the_right():
    assert text_of(at(50, 700, "ABC"), leftward(150, "abcd efgh"), at(180, 700, "END")) == in_hebrew(
        "ABC abcd efgh END"
    )


def test_text_that_is_only_latin_stays_as_it_is():
    assert text_of(at(50, 700, "THE END 12")) == "THE END 12"


def letters(*drawn: tuple[str, float, float]) -> list[Letter]:
    """Letters with their left and right edges."""
    boxes = [Edges(left, 0, right, 10) for _, left, right in drawn]
    return [Letter(text, box, box, 0, box) for (text, _, _), box in zip(drawn, boxes, strict=True)]


@pytest.mark.parametrize("alef", ["\u0627", "\u0622", "\u0623", "\u0625"])
def test_lam_comes_before_alef_in_their_ligature(alef):
    read = in_reading_order(letters(("\u0628", 20, 25), (alef, 10, 18), ("\u0644", 10, 18)))
    assert "".join(letter.text for letter in read) == f"\u0628\u0644{alef}"


def test_a_vowel_sign_follows_its_letter():
    read = in_reading_order(letters(("\u0650", 11, 13), ("\u0628", 10, 15), ("\u062a", 16, 20), ("\u064e", 17, 19)))
    assert "".join(letter.text for letter in read) == "\u062a\u064e\u0628\u0650"


def test_digits_in_a_word_run_from_the_left():
    read = in_reading_order(letters(("1", 0, 4), (".", 4, 6), ("5", 6, 10), ("\u05d0", 10, 15), ("\u05d1", 16, 20)))
    assert "".join(letter.text for letter in read) == "\u05d1\u05d01.5"
