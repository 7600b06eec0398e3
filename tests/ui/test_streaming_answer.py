"""An answer that is being generated, event by event."""

from dataclasses import asdict

from localctx.engine.events import NearestPassage, PassageAnswered, Planned, Token
from localctx.library.citations.cite import Citation
from localctx.ui import render
from localctx.ui.conversation import StreamingAnswer, window_gauge

CITED = asdict(Citation("a", "novel.txt", "12", None, 0, 5, "heron", "passage", 1.0))


def planned(mode: str) -> Planned:
    return Planned(mode, "why", 110_000, 0, 0, None, 256, 8192, "int8", "full", {})


def test_passages_answers_are_shown_until_the_report_comes():
    answer = StreamingAnswer("chat", [])
    answer.handle(planned("everywhere"))
    assert (answer.used, answer.window) == (0, 0), "no prompt has the tokens of all passages"
    assert "Asking every passage" in answer.plan.partition("<details>")[0]
    assert "110,000 tokens" in answer.plan.partition("<details>")[2]
    for said in ("heron", "two\nlines"):
        answer.handle(PassageAnswered(said, CITED))
    assert answer.quoted == "heron (novel.txt, page 12)\n\ntwo lines (novel.txt, page 12)\n\n"
    answer.handle(Token("2 of 9 passages", 0))
    assert (answer.quoted, answer.text) == ("", "2 of 9 passages")


def test_what_is_nearest_is_shown_below_the_answer_and_named():
    answer = StreamingAnswer("chat", [])
    answer.handle(Token("The document does not say.", 0))
    answer.handle(NearestPassage(CITED))
    assert answer.quoted == ""
    assert answer.nearest == "\n\nNearest passage, not an answer:\n“heron”\n(novel.txt, page 12)"
    below = render.sources([], lambda document: None, "The document does not say.", (), CITED)
    assert "<summary>Nearest passage, not an answer: novel.txt, page 12</summary>" in below


def test_the_gauge_is_of_prompts_only():
    tokens = {"prompt": 1000, "longest": 24}
    stats = {"tokens": tokens, "kv": {"window": 4096}}
    assert "25 % of what the model can read" in window_gauge({**stats, "mode": "full"})
    assert window_gauge({**stats, "mode": "everywhere"}) == ""
