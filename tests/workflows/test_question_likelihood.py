"""The likelihood of a question: whether passages answer it, and which sentence is nearest; invented names are told."""

import pytest
from ask_in_process import session

from localctx.engine.events import Done, NearestPassage, Quoted, Token
from localctx.library.wording.no_answer import NO_ANSWER
from localctx.workflows.answer import question_likelihood
from localctx.workflows.answer.passage_question import invents
from localctx.workflows.answer.question_likelihood import without_question

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7?"
HOW = {"mode": "retrieve", "careful": "auto", "max_tokens": 12, "repeats": "stop"}


def events_of(home, model, document, question=QUESTION, **how):
    with session(home, model, **{**HOW, **how}) as s:
        return list(s.stream(question, [str(document)]))


@pytest.fixture
def everything_answers(monkeypatch):
    """Random models find no question likelier after any passage."""
    monkeypatch.setattr(question_likelihood, "MIN_GAIN", -1e9)
    monkeypatch.setattr(question_likelihood, "MIN_GAIN_PER_TOKEN", -1e9)


def test_where_no_passage_makes_the_question_likelier_that_is_said(home, tiny_model, document):
    *events, done = events_of(home, tiny_model, document)
    assert isinstance(done, Done)
    assert (done.report.to_json()["stopped"], done.report.to_json()["answer"]) == ("unanswered", NO_ANSWER["en"])
    assert done.report.to_json()["citations"] == []
    nearest = done.report.to_json()["nearest"]
    assert nearest["quote"] in document.read_text()
    said = [e for e in events if isinstance(e, Quoted | Token | NearestPassage)]
    assert {type(e) for e in said[:-1]} == {Token}
    assert said[-1] == NearestPassage(nearest)


@pytest.mark.usefixtures("everything_answers")
def test_the_quotation_comes_first_and_is_of_the_passage(home, tiny_model, document):
    *events, done = events_of(home, tiny_model, document)
    said = [e for e in events if isinstance(e, Quoted | Token)]
    assert isinstance(said[0], Quoted)
    assert all(isinstance(e, Token) for e in said[1:])
    assert "".join(e.text for e in said[1:]).strip() == done.report.to_json()["answer"]
    first, *more = done.report.to_json()["citations"]
    passage = done.report.to_json()["passages"][0]
    assert said[0].citation == first
    for citation in (first, *more):
        assert passage["start"] <= citation["start"] < citation["end"] <= passage["end"]
        assert document.read_text()[citation["start"] : citation["end"]] == citation["quote"]


@pytest.mark.usefixtures("everything_answers")
@pytest.mark.parametrize("how", [{"careful": "off"}, {"temperature": 0.5, "seed": 1}, {"beams": 2}])
def test_other_answers_are_as_before(home, tiny_model, document, how):
    *_, done = events_of(home, tiny_model, document, **how)
    assert done.report.to_json()["stopped"] in ("eos", "length", "repeated")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Run: ask a.txt 'How long is river 7?' now", "Run: ask a.txt '' now"),
        ("HOW LONG, is river 7", ""),
        ("River 7 is long.", "River 7 is long."),
        ("", ""),
    ],
)
def test_a_question_that_stands_in_the_text_is_no_answer_to_itself(text, left):
    assert without_question(text, QUESTION) == left


@pytest.mark.parametrize(
    ("question", "text", "left"),
    [
        ("Rent?", "The current rent is 500. Rent is due.", "The current rent is 500. Rent is due."),
        ("Notice period?", "The notice period is two months.", "The notice period is two months."),
        ("Is it in the art?", "It is in the article. Is it in the art?", "It is in the article. "),
        ("押金是多少钱", "押金是多少钱: 三百元。", ": 三百元。"),
        ("押金", "押金是三百元。", "押金是三百元。"),
    ],
)
def test_a_short_question_may_be_a_term_of_the_text(question, text, left):
    assert without_question(text, question) == left


@pytest.mark.parametrize(
    ("answer", "invented"),
    [
        ("It is 85 years old.", True),
        ("He was seen by Miss Marlow.", True),
        ("The river is 259 km long, in Tyrol.", False),
        ("Nobody knows.", False),
        ("How long river 7 is.", False),
    ],
)
def test_names_and_numbers_that_no_text_has_are_invented(answer, invented):
    assert invents(answer, "River 7 in Tyrol is 259 km long.", QUESTION) == invented
