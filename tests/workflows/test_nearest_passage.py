"""Where nothing answers, no quotation stands above that: what is nearest comes below, named, in every skin."""

import pytest
from ask_in_process import session

from localctx.cli.ask import print_notes
from localctx.cli.terminal import Terminal
from localctx.engine.events import NearestPassage, Quoted, SentenceChecked
from localctx.library.wording.no_answer import NO_ANSWER
from localctx.results import answer_of
from localctx.store.transcript import to_markdown
from localctx.ui.answers.answer_card import CardContext, card

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7?"
HOW = {"mode": "retrieve", "careful": "auto", "max_tokens": 12}
"""Random models find no question likelier after any passage."""
NAME = "The closest passage"


@pytest.fixture
def events(home, tiny_model, document):
    with session(home, tiny_model, **HOW) as s:
        return list(s.stream(QUESTION, [str(document)]))


def test_the_report_and_the_api_have_it_apart_from_the_citations(home, tiny_model, document, events):
    report = events[-1].report.to_json()
    assert (report["answer"], report["stopped"], report["citations"]) == (NO_ANSWER["en"], "unanswered", [])
    assert "river 7" in report["nearest"]["quote"].casefold()
    assert not any(isinstance(event, Quoted) for event in events)
    assert [event.citation for event in events if isinstance(event, NearestPassage)] == [report["nearest"]]
    assert {e.sentence["support"] for e in events if isinstance(e, SentenceChecked)} == {"unchecked"}
    with session(home, tiny_model, **HOW) as s:
        answer = answer_of(s.stream(QUESTION, [str(document)]))
    assert answer.citations == ()
    assert answer.nearest.quote == report["nearest"]["quote"]


@pytest.mark.parametrize("quiet", [False, True])
def test_the_command_prints_it_below_with_its_name(events, capsys, quiet):
    terminal = Terminal(quiet=quiet)
    for event in events:
        terminal.show(event)
    terminal.end_answer()
    print_notes(events[-1].report.to_json(), 12, terminal)
    shown = capsys.readouterr().out
    said, _, below = shown.partition("\n\n")
    assert said.strip() == NO_ANSWER["en"]
    assert below.startswith(f'{NAME}: "') is not quiet


def test_a_chat_keeps_it_and_shows_and_exports_it_below(home, tiny_model, document):
    with session(home, tiny_model, **HOW) as s:
        chat = s.workflows.chats.start([str(document)]).id
        list(s.run(s.workflows.chats.ask(chat, QUESTION)))
        messages, opened = s.store.chats.messages(chat), s.store.chats.get(chat)
        shown = card(messages[-1], CardContext(s.store.documents.text))
    nearest = messages[-1].stats["nearest"]
    assert messages[-1].citations == []
    assert shown.index("I found no clear answer in rivers.txt.") < shown.index("The closest passage:")
    page = to_markdown(opened, messages)
    assert page.index(NO_ANSWER["en"]) < page.index(f"{NAME}: ") < page.index(" ".join(nearest["quote"].split())[:20])
    assert "[^1]" not in page


def test_an_older_message_shows_its_citation_as_the_nearest(home, tiny_model, document):
    with session(home, tiny_model, **HOW) as s:
        chat = s.workflows.chats.start([str(document)]).id
        list(s.run(s.workflows.chats.ask(chat, QUESTION)))
        message = s.store.chats.messages(chat)[-1]
        message.citations.append(message.stats.pop("nearest"))
        shown = card(message, CardContext(s.store.documents.text))
    assert shown.index("I found no clear answer in rivers.txt.") < shown.index("The closest passage:")
