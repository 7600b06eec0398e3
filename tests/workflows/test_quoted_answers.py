"""Quoted answers: they are in the document word for word, cited to the character, alone and side by side."""

import re

import pytest
from ask_in_process import ask, session

from localctx.engine.events import Done, Progress, Quoted, Token
from localctx.engine.scheduler import Scheduler
from localctx.library.citations.cite import likeliest_sentence
from localctx.library.citations.evidence import evidence_ranges

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7?"
QUOTED = {"answers": "quote", "mode": "full", "max_tokens": 24}


def events_of(home, model, document, question=QUESTION, **how):
    with session(home, model, **{**QUOTED, **how}) as s:
        return list(s.stream(question, [str(document)]))


def check(report: dict, text: str) -> None:
    """Assert that an answer is made of words of the sentences it cites, and these are where they are said to be."""
    assert report["decoding"] == "quote"
    assert report["citations"]
    quotes = [" ".join(c["quote"].split()) for c in report["citations"]]
    whole = {text[a:b] for a, b in evidence_ranges(text, 0, len(text))}
    for citation in report["citations"]:
        assert citation["source"] == "quote"
        assert text[citation["start"] : citation["end"]] == citation["quote"]
        assert citation["quote"] in whole or any(citation["quote"].startswith(one) for one in whole)
    assert report["answer"] == " ".join(report["answer"].split(" "))
    for part in re.split(r", | and |\n", report["answer"]):
        assert any(part in quote for quote in quotes)


@pytest.mark.parametrize("mode", ["full", "retrieve"])
def test_a_quoted_answer_is_in_the_document_word_for_word(home, tiny_model, sharp_model, document, mode):
    text = document.read_text()
    for model in (tiny_model, sharp_model):
        *events, done = events_of(home, model, document, mode=mode)
        assert isinstance(done, Done)
        report = done.report.to_json()
        check(report, text)
        said = [event for event in events if isinstance(event, Quoted | Token)]
        assert isinstance(said[0], Quoted)
        assert said[0].citation == report["citations"][0]
        assert "".join(event.text for event in said[1:]) == report["answer"]
        assert "quoting" in {event.phase for event in events if isinstance(event, Progress)}


@pytest.mark.parametrize(
    ("question", "how"),
    [
        ("Summarize the text.", {}),
        ("Please list the rivers.", {}),
        ("Explain how long river 7 is.", {}),
        (QUESTION, {"temperature": 0.7, "seed": 1}),
        (QUESTION, {"temperature": 0.7, "seed": 1, "n": 2}),
        (QUESTION, {"beams": 2}),
        (QUESTION, {"answers": "free"}),
        (QUESTION, {"answers": "auto"}),
    ],
)
def test_other_answers_are_free(home, tiny_model, document, question, how):
    *_, done = events_of(home, tiny_model, document, question, **{"max_tokens": 4, **how})
    assert done.report.to_json()["decoding"] == "free"


def test_a_quoted_answer_is_the_same_side_by_side(home, tiny_model, document):
    questions = [f"How long is river {i}?" for i in (3, 7, 21)]
    alone = [ask(home, tiny_model, document, question=q, dtype="f32", **QUOTED).report for q in questions]
    with session(home, tiny_model, dtype="f32", **QUOTED) as s:
        s.model  # noqa: B018 (loads)
        scheduler = Scheduler(s.forward_each)
        running = [scheduler.add(s.workflows.questions.ask([str(document)], q)) for q in questions]
        done = {sequence: event for sequence, event in scheduler.run() if isinstance(event, Done)}
        beside = [done[sequence].report for sequence in running]
    assert [r.answer for r in beside] == [r.answer for r in alone]
    assert [r.citations for r in beside] == [r.citations for r in alone]


def test_nothing_is_left_in_memory_after_a_quoted_answer(home, tiny_model, document):
    with session(home, tiny_model, **QUOTED) as s:
        list(s.stream(QUESTION, [str(document)]))
        assert not any(s.in_use.kv.values())


def test_of_several_places_that_in_the_sentence_with_the_words_of_the_question_is_cited():
    text = "In 1969 he was born. The landing was in 1969. Nobody came."
    places = [(at.start(), at.end()) for at in re.finditer("1969", text)]
    share, place, (start, end) = likeliest_sentence(text, places, "When was the landing?")
    assert (place, text[start:end]) == (places[1], "The landing was in 1969.")
    assert 0 < share <= 1


def test_a_run_over_two_sentences_is_shown_with_both():
    text = "He came. She went. It rained."
    start = text.index("came")
    _, _, around = likeliest_sentence(text, [(start, text.index("went") + 4)], "Who?")
    assert text[slice(*around)] == "He came. She went."


def test_the_command_says_the_sentence_and_the_answer(run, tiny_model, document):
    how = ("--model", tiny_model, "--mode", "full", "--threads", "1", "--max-tokens", "16")
    done = run("ask", document, QUESTION, "--answers", "quote", *how)
    assert done.returncode == 0
    quoted, answer = done.stdout.strip().split("\n\n", 1)
    assert quoted.startswith('"River')
    assert answer.strip()
    wrong = run("ask", document, QUESTION, "--answers", "loud", *how)
    assert wrong.returncode != 0
    assert "auto, quote or free" in wrong.stderr
