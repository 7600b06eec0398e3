"""The sentences of an answer are checked while it is given: in events, reports, the API, chats and the terminal."""

import re
import sys

import pytest
from ask_in_process import session
from browser import save_saying_model

from localctx.batch.markdown import fields
from localctx.cli.ask import print_notes
from localctx.cli.terminal import Terminal
from localctx.engine.events import Done, SentenceChecked, Token
from localctx.results import answer_of
from localctx.store.transcript import to_markdown

pytestmark = pytest.mark.slow

LEASE = (
    "1. Parties. This lease is between Ann Marlow and Joe Tan. 2. Rent. The rent is EUR 600 per month.\n"
    "3. Deposit. The deposit is EUR 1,200. It is paid at once.\n"
)
SAID, INVENTED = "The rent is 600 euros per month.", "The moon is made of cheese."
PIECES = [f"{text}{gap}" for text in (SAID, INVENTED) for gap in (" ", "  ", "\n", "\n\n")]
"""Tokens, of which the likeliest is said: random ones, so that some is likelier than a single byte."""


@pytest.fixture(scope="module")
def saying(tmp_path_factory):
    """A tiny model that says these two sentences, a token each, in some order."""
    return save_saying_model(tmp_path_factory.mktemp("models") / "saying", PIECES)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A tiny model whose first token is both sentences."""
    texts = [f"{SAID} {INVENTED}{gap}" for gap in ("", " ", "  ", "\n", " \n", "\n\n", "   ", "\n ")]
    return save_saying_model(tmp_path_factory.mktemp("models") / "once", texts)


@pytest.fixture
def lease(tmp_path):
    file = tmp_path / "lease.txt"
    file.write_text(LEASE)
    return file


def test_each_sentence_is_told_before_the_next_begins(home, saying, lease):
    with session(home, saying, max_tokens=6, draft=0, answers="free") as s:
        events = list(s.stream("How much is the rent?", [str(lease)]))
    report = events[-1].report
    told = [event.sentence for event in events if isinstance(event, SentenceChecked)]
    assert told == report.sentences
    assert len(told) == 6
    order = "".join("t" if isinstance(e, Token) else "s" if isinstance(e, SentenceChecked) else "" for e in events)
    assert order == "ts" * 6
    for sentence in told:
        words = report.answer[sentence["start"] : sentence["end"]]
        assert words in (SAID, INVENTED)
        assert sentence["support"] == ("supported" if words == SAID else "unsupported")
        if source := sentence["source"]:
            assert (sentence["number"], source["quote"]) == (1, "The rent is EUR 600 per month.")
            assert LEASE[source["start"] : source["end"]] == source["quote"]


@pytest.mark.parametrize("mode", ["full", "retrieve"])
def test_an_answer_of_the_api_has_its_sentences(home, once, lease, mode):
    with session(home, once, max_tokens=1, mode=mode, answers="free") as s:
        answer = answer_of(s.stream("How much is the rent?", [str(lease)]))
    said, invented = answer.sentences
    assert (said.support, said.number, said.source.name) == ("supported", 1, "lease.txt")
    assert (invented.support, invented.number, invented.source) == ("unsupported", None, None)


def test_nothing_is_checked_where_nothing_was_read_and_where_every_passage_is_asked(home, once, lease):
    with session(home, once, max_tokens=1, answers="free") as s:
        chat = s.workflows.chats.start([]).id
        *_, done = s.run(s.workflows.chats.ask(chat, "Hello!"))
        assert done.report.sentences == []
    with session(home, once, max_tokens=1, mode="everywhere") as s:
        *_, done = s.stream("How much is the rent?", [str(lease)])
        assert done.report.sentences == []


def test_a_quoted_answer_has_the_places_of_its_words(home, sharp_model, document):
    with session(home, sharp_model, answers="quote", max_tokens=6, dtype="f32") as s:
        *_, done = s.stream("How long is river 7?", [str(document)])
    report = done.report
    assert report.decoding == "quote"
    assert report.sentences
    for s in report.sentences:
        assert s["source"] in report.citations
        assert report.answer[s["start"] : s["end"]] in " ".join(s["source"]["quote"].split())


def test_a_chat_keeps_the_sentences_and_its_export_has_footnotes_after_them(home, once, lease):
    with session(home, once, max_tokens=1, answers="free") as s:
        chat = s.workflows.chats.start([str(lease)]).id
        list(s.run(s.workflows.chats.ask(chat, "How much is the rent?")))
        messages, opened = s.store.chats.messages(chat), s.store.chats.get(chat)
    assert [one["support"] for one in messages[-1].stats["sentences"]] == ["supported", "unsupported"]
    page = to_markdown(opened, messages)
    assert f"> {SAID}[^1] {INVENTED}" in page
    assert '[^1]: lease.txt: "The rent is EUR 600 per month."' in page


def test_a_batch_puts_the_same_numbers_after_sentences(home, once, lease):
    source = {"document": "d", "name": "lease.txt", "page": "2", "heading": None, "start": 0, "end": 5}
    source |= {"quote": "EUR 600", "source": "passage", "weight": 1.0}
    sentences = [
        {"start": 0, "end": len(SAID), "support": "supported", "number": 1, "source": source},
        {"start": len(SAID) + 1, "end": len(SAID + INVENTED) + 1, "support": "unsupported", "number": None,
         "source": None},
    ]  # fmt: skip
    answer = {"question": "Rent?", "answer": f"{SAID} {INVENTED}", "why": "", "citations": [source]}
    entry = dict.fromkeys(("name", "path", "document", "model", "summary"), "x") | {"sections": []}
    found = fields(entry | {"answers": [answer | {"sentences": sentences}, answer]})
    assert f"{SAID}[^1] {INVENTED}\n" in found["summary"] + "\n"
    assert f"{SAID} {INVENTED}[^2]" in found["summary"], "an old result has its sources at its end"
    assert found["sources"].startswith("[^1]: lease.txt, page 2:")


class Screen:
    """Standard output that is a terminal."""

    def __init__(self, stream) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return True

    def __getattr__(self, name: str):
        return getattr(self._stream, name)


@pytest.mark.parametrize("on_a_screen", [True, False])
def test_a_terminal_shows_numbers_and_a_pipe_gets_the_sentence_below_the_answer(
    home, saying, lease, monkeypatch, capsys, on_a_screen
):
    if on_a_screen:
        monkeypatch.setattr(sys, "stdout", Screen(sys.stdout))
        monkeypatch.setattr(sys, "stderr", Screen(sys.stderr))
    terminal = Terminal()
    with session(home, saying, max_tokens=6, draft=0, answers="free") as s:
        for event in s.stream("How much is the rent?", [str(lease)]):
            terminal.show(event)
    terminal.end_answer()
    assert isinstance(event, Done)
    report = event.report.to_json()
    print_notes(report, 6, terminal)
    shown, told = capsys.readouterr()
    answer = report["answer"].replace(SAID, f"{SAID} [1]" if on_a_screen else SAID)
    below = '\n\n"The rent is EUR 600 per month." (lease.txt)' if SAID in answer and not on_a_screen else ""
    assert re.sub(r"\n{3,}", "\n\n", shown.strip()) == f"{answer}{below}"
    if on_a_screen and SAID in report["answer"]:
        assert '[1] "The rent is EUR 600 per month." (lease.txt)' in told
    if on_a_screen and INVENTED in report["answer"]:
        assert f'no passage supports: "{INVENTED}"' in told


def test_below_an_answer_that_no_passage_supports_is_told_so_with_the_closest(home, saying, lease, capsys):
    terminal = Terminal()
    with session(home, saying, max_tokens=6, draft=0, answers="free") as s:
        report = list(s.stream("How much is the rent?", [str(lease)]))[-1].report.to_json()
    report["sentences"] = [{"start": 0, "end": 9, "support": "unsupported", "number": None, "source": None}]
    print_notes(report, 6, terminal)
    shown = capsys.readouterr().out
    assert shown.startswith('\nI am not sure. The closest passage: "')
    print_notes(report | {"mode": "compared"}, 6, terminal)
    assert capsys.readouterr().out == ""
    print_notes(report | {"citations": []}, 6, terminal)
    assert capsys.readouterr().out == "\nI am not sure.\n"
