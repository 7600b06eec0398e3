"""Evidence: a whole sentence or clause that answers, about the question where the answer is yes or no."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.library.citations.cite import (
    cite_from_attention,
    cite_passages,
    cite_words,
    likeliest_sentence,
    nearest_sentence,
)
from localctx.library.citations.evidence import LONG_WORDS, MIN_WORDS, count_words, evidence_ranges
from localctx.library.citations.sentence_sources import check_quotes
from localctx.library.search.search import Passage
from localctx.library.wording.sentences import sentences
from localctx.library.wording.yes_no import clause_after
from localctx.store.documents import DocumentRow, StoredDocument

ENGLISH = (
    "Tenancy agreement. The lift carries no more than twelve kilograms of goods. The tenant shall not keep pets in the "
    "flat without written consent of the landlord. The deposit of EUR 600 is paid in April. The rent is EUR 600 per "
    "month, due in April first. The tenant may keep bicycles in the cellar."
)
GERMAN = (
    "Mietvertrag. Der Aufzug trägt nicht mehr als zwölf Kilogramm. Nein, der Keller gehört nicht dazu. Die Haltung von "
    "Haustieren ist dem Mieter nur mit Zustimmung des Vermieters erlaubt. Die Miete beträgt 1.500,00 Euro im Monat."
)
FRENCH = (
    "Contrat de location. L'ascenseur ne porte pas plus de douze kilos, non compris les enfants. Le locataire ne peut "
    "pas garder d'animaux sans l'accord écrit du bailleur. Le loyer est de 1 500 euros par mois."
)
CHINESE = "租赁合同。电梯载重不超过十二公斤。租客未经房东书面同意不得饲养宠物。每月租金为1,500元。租客可以使用地下室。"
CASES = [
    (ENGLISH, "No.", "May I keep pets?", "shall not keep pets"),
    (ENGLISH, "no", "May I keep pets?", "shall not keep pets"),
    (ENGLISH, "Yes, with written consent.", "May I keep pets?", "shall not keep pets"),
    (ENGLISH, "Yes.", "Can I put my bicycle in the cellar?", "bicycles"),
    (ENGLISH, "April", "When is the rent due?", "The rent is"),
    (ENGLISH, "600 euros", "How much is the deposit?", "The deposit"),
    (GERMAN, "Nein.", "Darf ich Haustiere halten?", "Haustieren"),
    (GERMAN, "Ja, mit Zustimmung", "Sind Haustiere erlaubt?", "Haustieren"),
    (GERMAN, "1500 Euro", "Wie hoch ist die Miete?", "1.500,00 Euro"),
    (FRENCH, "Non.", "Est-ce que je peux garder des animaux ?", "animaux"),
    (FRENCH, "1500", "Quel est le loyer ?", "1 500 euros"),
    (CHINESE, "不可以。", "我可以养宠物吗？", "饲养宠物"),  # noqa: RUF001
    (CHINESE, "没有", "可以饲养宠物吗？", "饲养宠物"),  # noqa: RUF001
    (CHINESE, "1500元", "每月租金是多少？", "1,500元"),  # noqa: RUF001
]
WORDS = ["no", "yes", "pets", "keeps", "12.5", "EUR", "a", ",", ";", ".", "漢字", "。"]
TEXT = st.lists(st.sampled_from([*WORDS, "the tenant", ", and", "\n\n", "# R"]), max_size=120).map(" ".join)
ANSWER = st.sampled_from(
    ["No.", "yes", "Yes, the tenant keeps pets", "pets", "12.5", "Napoleon", "keeps pets; EUR", ""]
)


def document(text: str) -> StoredDocument:
    return StoredDocument(DocumentRow("d", "d.txt", "-", "utf-8", len(text), len(text), 0, 0), text, ())


def passage(text: str) -> Passage:
    return Passage("d", "d.txt", 0, len(text), text, None, None, 1.0, {})


@pytest.mark.parametrize(("text", "answer", "question", "words"), CASES)
def test_the_sentence_that_answers_is_cited_whole(text, answer, question, words):
    whole = [text[a:b] for a, b in sentences(text, 0, len(text))]
    pages = [(0, at, at + 60, 1 / (at + 2)) for at in range(0, len(text), 60)]
    for cited in (
        cite_words(answer, question, [document(text)]),
        cite_passages(answer, question, [passage(text)]),
        cite_from_attention(answer, question, [document(text)], pages),
    ):
        assert words in cited[0].quote
        assert all(citation.quote in whole for citation in cited)
        if clause_after(answer) is not None:
            assert len(cited) == 1


def test_attention_decides_between_sentences_that_answer_alike():
    text = "The fee is 600 crowns in all. Rain fell on the town. The fee is 600 crowns in all."
    at = text.rindex("The fee")
    (cited, *_) = cite_from_attention("600", "How much is it?", [document(text)], [(0, at, len(text), 0.5)])
    assert (cited.start, cited.source, cited.weight) == (at, "attention", 0.5)


def test_what_only_has_the_words_of_a_short_answer_apart_is_not_cited():
    text = "Vacuum cleaners are loud. The cleaner is called Henry Vacuum. The vacuum cleaner Henry stays in the flat."
    (cited,) = cite_words("Vacuum cleaner Henry", "What furniture stays?", [document(text)])
    assert cited.quote == "The vacuum cleaner Henry stays in the flat."


@pytest.mark.parametrize(
    ("answer", "clause"),
    [
        ("No.", ""),
        ("no", ""),
        ("**Yes**", ""),
        ("No, pets are forbidden.", "pets are forbidden."),
        ("Yes they may", "they may"),
        ("No - see clause 4", "see clause 4"),
        ("Nein.", ""),
        ("Ja, mit Zustimmung", "mit Zustimmung"),
        ("Non, sans accord", "sans accord"),
        ("Oui.", ""),
        ("Sí, con permiso", "con permiso"),
        ("是的。", ""),
        ("不可以，须经同意", "须经同意"),  # noqa: RUF001
        ("没有", ""),
        ("No pets are allowed", None),
        ("No. 5 is lost", None),
        ("Non-members", None),
        ("Si el inquilino paga", None),
        ("不可以养宠物", None),
        ("有限公司", None),
        ("Japan", None),
        ("", None),
    ],
)
def test_a_yes_or_no_is_known_in_several_languages(answer, clause):
    assert clause_after(answer) == clause


@pytest.mark.parametrize("answer", ["no", "No.", "Nein", "non", "否"])
def test_a_quoted_yes_or_no_is_supported_by_no_word(answer):
    quote = {"quote": "It carries no more than 12 kg, nein, non, 否.", "document": "d", "name": "d", "start": 0}
    quote |= {"end": 9, "page": None, "heading": None, "source": "quote", "weight": 1.0}
    assert [(part.support, part.source) for part in check_quotes(answer, [quote])] == [("unchecked", None)]


LONG = (
    "The tenant shall keep the flat in good order and shall clean the windows twice a year; the landlord shall repair "
    "the roof, the walls and the pipes of the house at his own cost, but the tenant pays for small repairs up to one "
    "hundred euros each, unless the damage was there before the lease began; pets are not allowed in the flat."
)


def test_a_long_sentence_is_cited_by_its_clause():
    (cited,) = cite_words("No.", "Are pets allowed?", [document(LONG)])
    assert cited.quote == "pets are not allowed in the flat."
    assert [LONG[a:b].split()[0] for a, b in evidence_ranges(LONG, 0, len(LONG))] == [
        "The", "the", "but", "unless", "pets",
    ]  # fmt: skip


@given(TEXT)
def test_a_clause_has_five_words_unless_its_sentence_has_fewer(text):
    ranges = list(evidence_ranges(text, 0, len(text)))
    whole = set(sentences(text, 0, len(text)))
    assert "".join("".join(text[a:b].split()) for a, b in ranges) == "".join(text.split())
    for start, end in ranges:
        assert (start, end) in whole or count_words(text[start:end]) >= MIN_WORDS
    assert all(of in ranges for of in whole if count_words(text[slice(*of)]) <= LONG_WORDS and of[1] - of[0] <= 300)


@given(TEXT, ANSWER, TEXT, st.lists(st.tuples(st.integers(0, 400), st.integers(1, 60), st.floats(0, 1)), max_size=4))
def test_no_citation_is_shorter_than_the_sentence_or_clause_it_is_in(text, answer, question, looks):
    pages = sorted(((0, a, a + n, share) for a, n, share in looks if a < len(text)), key=lambda page: -page[3])
    ranges = list(evidence_ranges(text, 0, len(text)))
    edges = {a for a, _ in ranges}, {b for _, b in ranges}
    cited = cite_words(answer, question, [document(text)]) + cite_passages(answer, question, [passage(text)])
    for citation in cited + cite_from_attention(answer, question, [document(text)], pages):
        assert citation.start in edges[0]
        assert citation.end in edges[1]
        assert text[citation.start : citation.end] == citation.quote
        shorter = any(count_words(text[a:b]) < MIN_WORDS for a, b in sentences(text, citation.start, citation.end))
        assert shorter or count_words(citation.quote) >= MIN_WORDS


@given(TEXT, st.integers(0, 300), st.integers(1, 20))
def test_words_that_were_quoted_are_shown_in_whole_sentences(text, start, length):
    if start + length > len(text) or not text[start : start + length].strip():
        return
    _, found, (first, last) = likeliest_sentence(text, [(start, start + length)], "")
    assert found == (start, start + length)
    assert first <= start < start + length <= last


def test_the_nearest_sentence_has_the_words_of_the_question():
    nearest = nearest_sentence([document(GERMAN), document(ENGLISH)], "Are bicycles insured?")
    assert nearest.quote == "The tenant may keep bicycles in the cellar."
    assert nearest.weight == 0


@pytest.mark.parametrize(
    "text",
    [
        "# Harbour\n\nBoats come.\n\n## Who keeps the harbour\n\nThe **warden** lives in the tower.\n\nRain falls.",
        "Harbour\n\nBoats come.\n\nWho keeps the harbour\n\nThe **warden** lives in the tower.\n\nRain falls.",
    ],
)
def test_the_sentence_below_a_heading_is_nearest_not_the_heading(text):
    nearest = nearest_sentence([document(text)], "Who keeps the harbour?")
    assert nearest.quote == "The **warden** lives in the tower."
