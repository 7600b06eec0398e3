"""The documents that we wrote and the questions about them: whole, and judged as a person would judge."""

import re
from collections import Counter

import pytest
from own_answers import FOLDER, OwnQuestion, has_expected, is_right, load_questions, polarity, says_nothing, tokens
from selectolax.lexbor import LexborHTMLParser

from localctx.library.wording.no_answer import NO_ANSWER

QUESTIONS, LANGUAGES = load_questions()


def paragraphs(name: str) -> list[str]:
    """The lines of a document, or its elements where it is a web page."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    if name.endswith(".html"):
        return [node.text() for node in LexborHTMLParser(text).css("p, li, tr, h1, h2")]
    return [line for line in re.split(r"\n+", text) if line.strip()]


def question(expected: list[list[str]], yes_no: str = "") -> OwnQuestion:
    return OwnQuestion("id", "document", "en", "?", expected, yes_no)


def test_there_are_sixty_questions_with_an_answer_and_fifteen_without():
    assert Counter(bool(q.expected) for q in QUESTIONS) == {True: 60, False: 15}
    assert 12 <= sum(bool(q.yes_no) for q in QUESTIONS) <= 20


def test_ids_are_unique():
    assert max(Counter(q.id for q in QUESTIONS).values()) == 1
    assert max(Counter(q.question for q in QUESTIONS).values()) == 1


def test_every_document_is_asked_with_and_without_an_answer():
    files = {file.name for file in FOLDER.iterdir()} - {"questions.toml"}
    assert files == set(LANGUAGES)
    assert {(q.document, bool(q.expected)) for q in QUESTIONS} == {(f, has) for f in files for has in (True, False)}


def test_questions_are_asked_in_other_languages_than_the_document():
    assert {q.language for q in QUESTIONS} == {"en", "de", "fr", "zh"}
    assert sum(q.language != LANGUAGES[q.document] for q in QUESTIONS) >= 15


def test_documents_are_between_two_pages_and_twenty():
    length = {name: sum(len(tokens(p)) for p in paragraphs(name)) for name in LANGUAGES}
    assert min(length.values()) > 1_000
    assert 6_000 < max(length.values()) < 9_000


@pytest.mark.parametrize("one", [q for q in QUESTIONS if q.verbatim], ids=lambda q: q.id)
def test_a_paragraph_has_the_expected_words(one):
    assert any(has_expected(one, paragraph) for paragraph in paragraphs(one.document))


def test_what_is_expected_is_found_nowhere_in_the_question():
    """But for a yes or no, or one of two that are named: an echo of the question is no answer."""
    assert [q.id for q in QUESTIONS if not q.yes_no and has_expected(q, q.question)] == []


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("four months", "4 months"),
        ("four month*", "a notice of 4 Months."),
        ("dreissig Tage", "dreißig Tage"),
        ("2.400", "Die Kaution beträgt 2400 Euro."),
        ("2,400", "EUR 2.400,00"),
        ("1 150 €", "1150 €"),
        ("84.60", "£84,6 per thousand"),
        ("9 %", "up to 9 per cent"),
        ("9 %", "9 Prozent"),
        ("vingt-cinq", "25 minutes"),
        ("43", "forty-three knots"),
        ("3月15日", "在3月15日以后"),
        ("1.78", "1.78亿元"),
    ],
)
def test_the_same_in_other_words_is_right(expected, answer):
    assert is_right(question([[expected]]), answer)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("four months", "fourteen months"),
        ("4 months", "0.4 months"),
        ("0.081", "81"),
        ("43", "143"),
        ("12", "1,200"),
        ("2.280", "2.28"),
        ("25", "twenty"),
        ("禁止", "可以"),
        ("no", "notice"),
        ("month*", "mon"),
    ],
)
def test_something_else_is_wrong(expected, answer):
    assert not is_right(question([[expected]]), answer)


def test_an_alternative_needs_all_its_phrases():
    both = question([["porte", "trop tôt"]])
    assert is_right(both, "La porte s'ouvre trop tôt.")
    assert not is_right(both, "La porte s'ouvre.")


@pytest.mark.parametrize(
    ("yes_no", "answer", "right"),
    [
        ("no", "No.", True),
        ("no", "Nein, die Vermieterin zahlt.", True),
        ("no", "Yes, by registered letter.", False),
        ("no", "Only by registered letter.", True),
        ("no", "By post.", False),
        ("yes", "Oui.", True),
        ("yes", "不可以。", False),
        ("yes", "可以。", True),
        ("either", "Yes.", True),
        ("either", "No.", False),
        ("either", "No, only by registered letter.", True),
    ],
)
def test_yes_and_no(yes_no, answer, right):
    assert is_right(question([["registered letter"]], yes_no), answer) is right


def test_a_word_that_begins_like_no_is_no_polarity():
    assert polarity("Notice is given by letter.") == ""


@pytest.mark.parametrize(
    "answer",
    [
        "The document does not say.",
        *(NO_ANSWER[language] for language in ("en", "de", "fr", "zh")),
        "The contract doesn't mention a tax rate.",
        "The phone number is not provided.",
        "Das Dokument sagt es nicht.",
        "Das Baujahr ist nicht angegeben.",
        "Le document ne le dit pas.",
        "Le prix n'est pas indiqué dans la notice.",
        "文档没有说明。",
        "报告未提及降水量。",
    ],
)
def test_refusals_are_recognized(answer):
    assert says_nothing(answer)


@pytest.mark.parametrize("answer", ["No.", "Das darf er nicht.", "Il ne faut pas.", "没有完成\uff0c因为水闸推迟。"])
def test_answers_are_no_refusals(answer):
    assert not says_nothing(answer)
