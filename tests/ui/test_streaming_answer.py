"""An answer that is being generated, event by event."""

import re
from dataclasses import asdict

from localctx.engine.events import NearestPassage, PassageAnswered, Planned, Progress, Quoted, Token
from localctx.library.citations.cite import Citation
from localctx.ui.answers.conversation import StreamingAnswer

CITED = asdict(Citation("a", "novel.txt", "12", None, 0, 5, "heron", "passage", 1.0))


def planned(mode: str) -> Planned:
    return Planned(mode, "why", 110_000, 0, 0, None, 256, 8192, "int8", "full", {})


def test_passages_answers_are_shown_until_the_report_comes():
    answer = StreamingAnswer("chat", "")
    answer.handle(planned("everywhere"))
    assert "Asking every passage" in answer.status.partition("<details>")[0]
    assert "110,000 tokens" in answer.status.partition("<details>")[2]
    for said in ("heron", "two\nlines"):
        answer.handle(PassageAnswered(said, CITED))
    shown = re.sub("<.*?>", "", answer.html)
    assert shown == "heron novel.txt · p. 12 ↗two lines novel.txt · p. 12 ↗"
    answer.handle(Token("2 of 9 passages", 0))
    assert "heron" not in answer.html
    assert "2 of 9 passages" in answer.html


def test_the_work_on_an_answer_is_one_line():
    answer = StreamingAnswer("chat", "")
    answer.handle(planned("full"))
    answer.handle(Progress("reading", 99, 100, 99))
    assert re.sub("<details>.*?</details>|<.*?>", "", answer.status_lines) == (
        "Reading the full document: 99 %, 99 % already read "
    )
    assert "110,000 tokens" in answer.status_lines
    answer.handle(Token("two", 0))
    assert re.sub("<.*?>", "", answer.status_lines) == "Answering …"


def test_no_quotation_stands_below_an_answer_that_nothing_answers():
    answer = StreamingAnswer("chat", "")
    answer.handle(Quoted(CITED))
    assert "<blockquote>heron</blockquote>" in answer.html
    answer.handle(Token("The document does not say.", 0))
    answer.handle(NearestPassage(CITED))
    assert "heron" not in answer.html


def test_an_answer_stands_above_what_it_rests_on_while_it_grows():
    answer = StreamingAnswer("chat", "")
    answer.handle(Quoted(CITED))
    answer.handle(Token("A **bird**", 0))
    assert answer.html.index("<strong>bird</strong>") < answer.html.index("<blockquote>")
