"""What kind a question is, by its English words; of a question in another language nothing is guessed."""

import pytest

from localctx.library.wording.small_talk import is_small_talk
from localctx.workflows.answer import question_kind
from localctx.workflows.answer.question_kind import (
    as_question,
    asks_for_summary,
    asks_in_many_places,
    asks_of_the_whole,
    is_instruction,
    may_be_english,
    summary_of_all,
    without_instruction,
)

GUESSES = (asks_for_summary, asks_of_the_whole, asks_in_many_places, is_instruction)


def kinds(question: str) -> list[bool]:
    """What each of GUESSES says of a question."""
    return [guess(question) for guess in GUESSES]


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Summarize it.", [True, True, True, True]),
        ("What are the main themes?", [True, True, True, False]),
        ("List all gates.", [False, True, True, True]),
        ("How many gates are there?", [False, False, True, False]),
        ("Does anyone ever die?", [False, False, True, False]),
        ("Explain clause 4.", [False, False, False, True]),
        ("Who opened the first gate?", [False, False, False, False]),
        ("", [False, False, False, False]),
    ],
)
def test_kinds_are_told_by_english_words(question, found):
    assert kinds(question) == found


@pytest.mark.parametrize(
    ("question", "length", "style"),
    [
        ("Summarize it.", "medium", "prose"),
        ("Please summarise this document in two sentences", "short", "prose"),
        ("Sum up the whole report in about 120 words.", "120", "prose"),
        ("Give me a short summary of the lease", "short", "prose"),
        ("Can you summarize both contracts in five bullet points?", "medium", "bullets"),
        ("Summarize everything as bullet points", "medium", "bullets"),
        ("summarize report.pdf in three paragraphs", "long", "prose"),
        ("TL;DR", "short", "prose"),
        ("Summarize it, please.", "medium", "prose"),
        ("Please, summarize it.", "medium", "prose"),
        ("Can you summarize this document for me, please?", "medium", "prose"),
        ("Summarize this in bullet points", "medium", "bullets"),
        ("Summarize all documents", "medium", "prose"),
    ],
)
def test_a_summary_of_all_has_the_length_that_is_asked_for(question, length, style):
    assert summary_of_all(question) == (length, style)


@pytest.mark.parametrize(
    "question",
    [
        "Summarize the clause on repairs.",
        "What is the overall rent?",
        "Who wrote the summary?",
        "Summarize what Dick says about work.",
        "Fasse das Dokument zusammen.",
        "Give me the names of the rivers.",
    ],
)
def test_other_questions_ask_for_no_summary_of_all(question):
    assert summary_of_all(question) is None


@pytest.mark.parametrize(
    ("instruction", "question"),
    [
        ("List all gates' passwords.", "What are all gates' passwords?"),
        ("Please list the names of the horses", "What are the names of the horses?"),
        ("Can you give me every date on which it rained?", "What is every date on which it rained?"),
        ("Tell me who signed the lease.", "Who signed the lease?"),
        ("Name the landlord.", "What is the landlord?"),
        ("List three risks of the plan.", "What are three risks of the plan?"),
        ("Name the boss of all the cooks.", "What is the boss of all the cooks?"),
        ("Find out whether anyone died", "Find out whether anyone died"),
        ("Name of the first horse?", "Name of the first horse?"),
        ("Tell me about Dick.", "Tell me about Dick."),
        ("What is on the list?", "What is on the list?"),
        ("Listen to me.", "Listen to me."),
        ("list", "list"),
        ("", ""),
    ],
)
def test_an_instruction_to_list_is_put_as_a_question(instruction, question):
    assert as_question(instruction) == question


OTHER_LANGUAGES = [
    "Gib mir ein Summary für das Dokument",
    "List all the Türen",
    "Краткое summary",
    "Compare les deux contrats de location et dis quelles sont les differences entre les clauses de chacun.",
    "Translate bitte den Vertrag und sage mir, was der Mieter bis zum Ende der Laufzeit zu zahlen hat.",
    "Describe el contrato y di cuanto tiene que pagar el inquilino cada mes durante la duracion del contrato.",
    "Summary: 请列出所有门的密码",
]
"""Questions with English words in them, of which only the language says that they are no English."""


@pytest.mark.parametrize("question", OTHER_LANGUAGES)
def test_nothing_is_guessed_of_a_question_in_another_language(question, monkeypatch):
    assert kinds(question) == [False] * len(GUESSES)
    assert as_question(question) == without_instruction(question) == question
    monkeypatch.setattr(question_kind, "may_be_english", lambda text: True)
    assert any(kinds(question)), "it has words that an English question of some kind has"


def test_an_instruction_to_list_in_another_language_is_put_as_it_is():
    for question in (
        "List fünf Türen",
        "Name der Tür",
    ):
        assert as_question(question) == without_instruction(question) == question


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("List all gates", True),
        ("Vertrag", True),  # too short to tell
        (
            "What does clause 4.2 \N{EM DASH} \N{LEFT DOUBLE QUOTATION MARK}Rent\N{RIGHT DOUBLE QUOTATION MARK} say?",
            True,
        ),
        ("Who is Zoë?", False),
        (
            "What is the name of the lady that Zoë was with on the day of the storm?",
            True,
        ),
        ("", True),
    ],
)
def test_a_short_question_is_english_if_its_letters_may_be(text, english):
    assert may_be_english(text) == english


def test_small_talk_is_english():
    assert is_small_talk("Thanks!")
    assert not is_small_talk("Danke sehr!")
    assert not is_small_talk("Merci, très bien")


def test_a_search_leaves_out_what_is_to_be_done():
    assert without_instruction("List all gates").split() == ["gates"]
