"""An answer is compared with one from the sentences that have more words of the question."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from ask_in_process import session

from localctx.engine.events import Event, Progress, Token
from localctx.engine.request import Request
from localctx.engine.run_request import emit_text, run_request
from localctx.library.citations.cite import cite_words
from localctx.workflows.answer import second_look
from localctx.workflows.answer.answer_case import AnswerCase
from localctx.workflows.answer.second_look import look_again

TEXT = """# Excess

The excess is 150 euros for each claim.

The premium is due in May. Bicycles are insured. Cash is insured. Rings are insured.

For damage by a storm it is 300 euros.

Report it within a week. Keep the damaged things. We may come and see them.
"""
STORM = "What is the excess for damage by a storm?"


@dataclass
class Look:
    """What came of a look: the request, its events, and the texts that were asked the second time."""

    request: Request
    events: list[Event] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Token))


@pytest.fixture
def look(home, tiny_model, tmp_path) -> Callable[..., Look]:
    """Asks about TEXT: ``first`` is answered from all of it, ``second`` from some of its sentences."""

    def look(question: str, first: str, second: str) -> Look:
        file = tmp_path / "policy.md"
        file.write_text(TEXT)
        asked = list[str]()

        def answer(case: AnswerCase, text: str):
            yield Progress("reading", 1, 2)
            yield from emit_text(case.request, text)
            case.request.result.stopped = "eos" if text else "unanswered"
            case.request.result.citations = cite_words(text, question, case.request.prompt.documents) if text else []

        def answer_again(case: AnswerCase):
            asked.append(case.request.prompt.documents[0].text)
            yield from answer(case, second)

        with session(home, tiny_model) as s:
            questions = s.workflows.questions

            def run():
                request = yield from questions.open([s.workflows.read(str(file))], question, False)
                case = AnswerCase(questions._builder, request, question, s.settings, (), questions.open)
                yield from run_request(request, look_again(case, answer(case, first), answer_again))
                return request

            events, running = list[Event](), s.run(run())
            while True:
                try:
                    events.append(next(running))
                except StopIteration as end:
                    return Look(end.value, events, asked)

    return look


def test_the_answer_of_the_sentences_with_more_words_of_the_question_is_given(look):
    found = look(STORM, "150 euros", "300 euros")
    assert (found.text, found.request.texts[0]) == ("300 euros", "300 euros")
    (asked,) = found.asked
    assert "storm" in asked
    assert "150 euros" in asked, "the cited sentence stays in the choice"
    assert "We may come" not in asked
    cited = found.request.result.citations[0]
    assert TEXT[cited.start : cited.end] == cited.quote == "For damage by a storm it is 300 euros."
    assert cited.heading == "Excess"
    assert found.request.seconds["again"] > 0
    assert [event.phase for event in found.events if isinstance(event, Progress)] == ["reading", "reading again"]


def test_an_answer_stays_where_its_sentence_has_most_of_the_words(look):
    found = look(STORM, "300 euros", "150 euros")
    assert (found.text, found.asked) == ("300 euros", [])


def test_an_answer_stays_where_the_sentences_do_not_answer(look):
    found = look(STORM, "150 euros", "")
    assert (found.text, len(found.asked)) == ("150 euros", 1)
    assert found.request.result.citations[0].quote.endswith("150 euros for each claim.")


def test_no_answer_is_not_looked_at_again(look):
    assert look(STORM, "", "300 euros").asked == []


def test_a_long_document_is_not_looked_at_again(look, monkeypatch):
    monkeypatch.setattr(second_look, "LONGEST", 10)
    assert look(STORM, "150 euros", "300 euros").text == "150 euros"
