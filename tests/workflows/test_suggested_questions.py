"""Suggested questions: each asks for something that stands in the document, in the document's language."""

import pytest

from localctx.store.documents import Span
from localctx.ui.chat import empty_chat
from localctx.workflows.ahead.model_questions import rule_questions
from localctx.workflows.ahead.suggested_questions import COUNT, suggest_questions
from localctx.workflows.ahead.topics import find_topics, in_a_sentence

LEASE = """TENANCY AGREEMENT

1. Rent

The monthly rent is £1,150, payable in advance by standing order. A late payment bears interest at four per cent.

2. Term

The tenancy begins on 1 March 2025 and runs for twelve months. It may be renewed by a letter of both parties.

3. Deposit

The deposit is due before the keys are handed over. It is held by an independent scheme until the end of the tenancy.

4. Pets

The Tenant may not keep animals in the flat, except for one small dog with written consent of the Landlord.
"""
RUN_IN = """FLAT SHARE

1. Rent. Each of the two people who live here pays half of what the owner asks for the flat and its furniture.
2. Noise. Nobody plays music after ten in the evening, on Sundays and holidays not before nine in the morning either.
3. Guests. A guest may stay for three nights in a row; whoever wants to stay longer asks the other one beforehand.
"""
MIETE = """Mietvertrag über eine Wohnung

§ 1 Mietsache
Vermietet wird die Wohnung im zweiten Stock des Hauses Kaistraße 14, bestehend aus drei Zimmern, Küche und Bad.

§ 2 Kaution
Der Mieter zahlt eine Kaution von 1.880 Euro, die nach dem Ende des Mietverhältnisses zurückgezahlt wird.

§ 3 Haustiere
Eine Katze oder ein kleiner Hund darf mit schriftlicher Zustimmung des Vermieters gehalten werden.
"""
ORDNUNG = "Hausordnung\n\n" + "".join(
    f"§ {i} {word}\nDer Mieter hält sich an das, was der Vermieter hierzu schriftlich mit ihm vereinbart hat.\n\n"
    for i, word in enumerate(("Miete", "Kaution", "Garten", "Keller", "Haustiere", "Lärm", "Gäste", "Müll"), 1)
)
STORY = (
    "“Come in,” said Ellen, and she opened the door. Dick said nothing. “It is late,” said Ellen. Then old Hammond "
    "asked where the boat was. “By the weir,” said Dick. The boy looked at him. “I know it,” replied Hammond.\n\n"
) * 3


def asked(text: str, headings: tuple[str, ...] = ()) -> list[str]:
    starts = [text.index(heading) for heading in headings]
    ends = [*starts[1:], len(text)]
    spans = [Span(a, b, "heading", h.strip("# ")) for a, b, h in zip(starts, ends, headings, strict=False)]
    return suggest_questions(text, spans)


def test_a_contract_is_asked_for_what_it_states():
    assert asked(LEASE) == ["How much is the monthly rent?", "When is the deposit due?", "What does it say about term?"]


def test_every_heading_of_a_text_without_marks_is_a_topic_but_none_that_every_document_has():
    assert find_topics(LEASE, []) == ["Rent", "Term", "Deposit", "Pets"]
    more = LEASE + "\n5. Miscellaneous\n\nChanges of this agreement have to be made in writing by both parties.\n"
    assert "Miscellaneous" not in find_topics(more, [])


@pytest.mark.parametrize(
    ("heading", "question"),
    [
        ("What happens when a document is read", "What happens when a document is read?"),
        ("When the tenant leaves", "What happens when the tenant leaves?"),
        ("How to bleed a radiator", "How do I bleed a radiator?"),
        ("Who pays for repairs?", "Who pays for repairs?"),
        ("How soon repairs are done", "What does it say about how soon repairs are done?"),
    ],
)
def test_a_heading_that_is_nearly_a_question_becomes_one(heading, question):
    text = f"# House rules\n\n# {heading}\n\n" + "Ask at the door first, and ring twice if nobody comes. " * 3
    assert question in asked(text, ("# House rules", f"# {heading}"))


def test_headings_that_run_into_the_sentence_are_topics():
    assert asked(RUN_IN) == [
        "What does it say about rent?",
        "What does it say about noise?",
        "What does it say about guests?",
    ]


def test_a_german_document_is_asked_in_german():
    assert asked(MIETE) == [
        "Was steht darin zum Punkt „Mietsache“?",
        "Was steht darin zum Punkt „Kaution“?",
        "Was steht darin zum Punkt „Haustiere“?",
    ]


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        ("Il contratto prevede che le spese siano divise tra tutte le parti ogni anno.", "su «Le spese»?"),
        (
            "Le contrat prévoit que les charges sont partagées entre toutes les parties.",
            "sur « Le spese » ?",
        ),
        ("Umowa przewiduje, że koszty są dzielone między wszystkie strony każdego roku po równo.", "„Le spese”?"),
    ],
)
def test_other_languages_have_their_own_words_and_the_heading_as_it_is(sentence, question):
    text = f"Altro\n{sentence * 3}\n\nLe spese\n{sentence * 3}\n"
    assert asked(text, ("Altro", "Le spese"))[-1].endswith(question)


def test_a_story_is_asked_who_somebody_is_only_if_it_says_so():
    assert not [question for question in asked(STORY) if question.startswith("Who is")]
    told = "“Here is the weir,” said Dick, the ferryman of the village. Hammond was the oldest man of the house.\n\n"
    assert {"Who is Dick?", "Who is Hammond?"} <= set(asked(STORY + told))
    assert "Who is Ellen?" not in asked(STORY + told)


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        ("The king was very sad because his three sons had left him.", "Why was the king very sad?"),
        ("The mill cannot be sold because two heirs are abroad.", "Why can the mill not be sold?"),
        ("The old tower was designed by Ada Lindqvist.", "Who designed the old tower?"),
        ("The office is located in Port Marigold, by the sea.", "Where is the office located?"),
        ("Once upon a time, the miller had three sons.", "How many sons did the miller have?"),
        ("Ada Lindqvist died at home on 3 May 1921.", "When did Ada Lindqvist die at home?"),
        ("After that, the miller decided to sell the mill.", "What did the miller decide to do?"),
        ("They knew a wizard called Trapezius.", "What is the wizard called?"),
        ("Open data is data that is free.", None),
        ("It was designed by Ada Lindqvist.", None),
        ("What he wanted was located in Port Marigold.", None),
        ("Its height is 40 euros and their rent is 9 euros.", None),
        ("The second was founded in 1921.", None),
        ("The other three were located in Port Marigold.", None),
        ("The tenant may sublet it to a friend of the family.", None),
        ("The old report was kept by hand.", None),
        ("The plan is based in part on hope.", None),
        ("Every number is defined as a sum of numbers; every number is.", None),
        ("He wanted it, he started, and Ted died at home on 3 May 1921.", "When did Ted die at home?"),
    ],
)
def test_a_statement_is_asked_for_what_it_says_and_nothing_dangles(sentence, question):
    assert asked(f"Of this the book tells on every page. {sentence} ") == ([question] if question else [])


@pytest.mark.parametrize("text", [LEASE, ORDNUNG])
def test_more_are_made_than_are_suggested_and_the_best_come_first(text):
    more = suggest_questions(text, [], 8)
    assert more[:COUNT] == asked(text)
    assert COUNT < len(more) <= 8
    assert len(set(more)) == len(more)


def test_a_title_in_capitals_is_lower_case_but_for_names():
    text = "We read of a Romance, and of the NATO too."
    assert in_a_sentence("ROMANCE AND BED OF NATO", text) == "Romance and bed of NATO"


def test_terms_that_are_defined_are_asked_for():
    text = "“Legal Entity” means the union of the acting entity and all other entities that control it. " * 2
    assert asked(text + "The rest of the text of this licence says something else about it.") == [
        "What is meant by “Legal Entity”?"
    ]


def test_prose_without_headings_is_asked_for_what_happened_and_its_names():
    text = (
        "The Brooklyn Bridge was opened in 1883 after years of work. People walk over it every day. "
        + "Many of the workers knew Emily Roebling well. She went to see Emily Roebling. " * 2
    )
    assert asked(text) == ["When was the Brooklyn Bridge opened?", "What does it say about Emily Roebling?"]


def test_names_keep_their_capitals_in_a_sentence_and_other_words_lose_theirs():
    text = "We sail to Greenland. In the harbour of Nuuk there is a light that the NATO pays for."
    assert in_a_sentence("Sailing To Greenland", text) == "sailing to Greenland"
    assert in_a_sentence("NATO LIGHTS", text) == "NATO lights"


@pytest.mark.parametrize("text", ["", "x", "12 34 56", "\n\n", "a" * 5000, "# \n## \n", "日本" * 200])
def test_a_text_in_which_nothing_stands_out_suggests_nothing(text):
    assert suggest_questions(text, []) == []


def test_of_a_long_list_of_headings_those_from_all_over_are_asked():
    names = ("Boats", "Nets", "Tides", "Bait", "Ropes", "Sails", "Winds", "Knots", "Maps")
    body = "\nWhat stands here is long enough to be asked about, and it is of some use to somebody.\n\n"
    text = "".join(f"## {name}{body}" for name in names)
    questions = asked(text, tuple(f"## {name}" for name in names))
    assert len(questions) == COUNT
    assert questions[0].endswith("nets?"), "the first heading is the title of the whole"
    assert questions[-1].split()[-1] in ("winds?", "knots?", "maps?")


def test_several_documents_are_asked_in_turn():
    class Document:
        spans = ()

        def __init__(self, text):
            self.text = text

    questions = rule_questions([Document(LEASE), Document(RUN_IN)])
    assert questions[:2] == ["How much is the monthly rent?", "What does it say about rent?"]
    assert len(questions) == COUNT


def test_the_sample_is_asked_for_what_stands_in_it():

    from localctx.library.read_document import read_document

    document = read_document(empty_chat.SAMPLE_FILE)
    questions = suggest_questions(document.text, document.spans)
    assert "Who keeps the harbour?" in questions
    assert len(questions) == COUNT


def test_what_must_be_done_is_asked_with_its_whole_amount():
    text = "The Tenant shall pay a rent of 1,150.50 euros by bank transfer."
    assert suggest_questions(text, []) == ["Must the tenant pay a rent of 1,150.50 euros by bank transfer?"]
    assert suggest_questions(text.replace("shall", "may"), [])[0].startswith("May the tenant pay a rent of 1,150.50")
