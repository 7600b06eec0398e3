"""Questions about the whole of a long document: what is offered for them, and answers from all of it in a chat."""

import time
from pathlib import Path

import pytest
from ask_in_process import session

from localctx.engine.events import Done, Note, PassageAnswered, Planned, Progress, Token, WholeOffered
from localctx.errors import UsageError
from localctx.store.caches import ANSWER_RATE
from localctx.store.documents import StoredDocument
from localctx.workflows import summary_time
from localctx.workflows.summary_time import estimate_summary_seconds

pytestmark = pytest.mark.process


@pytest.fixture
def valley(tmp_path) -> Path:
    """A text beyond the tiny model's window, with a fact in each paragraph."""
    names = ("Avon", "Brue", "Cam", "Dee", "Esk", "Quell", "Frome", "Goyt", "Hull", "Irk", "Kent", "Lea")
    path = tmp_path / "the valley.txt"
    path.write_text(
        "\n\n".join(
            f"The river {name} rises in county {i} among hills of slate, and it is {i * 37 + 11} km long in all. Its "
            f"banks are lined with alder and willow, and every spring of {1900 + i} it floods the meadows by the mill."
            for i, name in enumerate(names * 2)
        )
    )
    return path


@pytest.fixture
def opened(home, sharp_model):
    return lambda **settings: session(home, sharp_model, **{"max_tokens": 24, **settings})


def asked(s, valley: Path, question: str) -> tuple[str, list]:
    chat = s.workflows.chats.start([str(valley)]).id
    return chat, list(s.run(s.workflows.chats.ask(chat, question)))


def kinds(events, kind) -> list:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize(
    ("question", "way"),
    [
        ("Summarize the rivers.", "summarize"),
        ("List all rivers.", "everywhere"),
        ("How many rivers are there?", "everywhere"),
    ],
)
def test_a_question_about_the_whole_is_offered_a_way_to_answer_it(opened, valley, question, way):
    with opened() as s:
        _, events = asked(s, valley, question)
        (offer,) = kinds(events, WholeOffered)
        assert set(offer.ways) == {way}
    command = {"summarize": "localctx summarize 'the valley.txt'", "everywhere": "--mode everywhere"}[way]
    assert command in offer.text, "what a terminal prints"


def test_what_is_read_whole_and_other_questions_are_offered_nothing(opened, valley, document):
    with opened() as s:
        assert not kinds(asked(s, valley, "How long is the river Quell?")[1], WholeOffered)
        assert not kinds(asked(s, document, "Summarize the rivers.")[1], WholeOffered)


def test_a_chat_that_is_asked_for_a_summary_summarizes_and_looks_up_no_passage(opened, valley):
    with opened(summaries="extract") as s:
        chat, events = asked(s, valley, "Summarize it.")
        assert [plan.mode for plan in kinds(events, Planned)] == ["summarize"]
        assert not kinds(events, WholeOffered)
        assert "offered" not in s.store.chats.messages(chat)[-1].stats


def test_a_summary_that_takes_minutes_to_write_is_extracted_and_offered(opened, valley):
    with opened(summaries="write") as s:
        s.store.caches.note_rate(s.workflows.chats._builder.fingerprint, 1.0, "characters summarized (write)")
        chat, events = asked(s, valley, "Summarize it in two sentences.")
        (plan,) = kinds(events, Planned)
        message = s.store.chats.messages(chat)[-1]
        assert plan.mode == message.stats["mode"] == "extract"
        assert set(message.stats["offered"]) == {"summarize"}, "a reload shows it again"
        assert all(cited["quote"] in valley.read_text() for cited in events[-1].report.citations)
        *_, done = s.run(s.workflows.chats.ask_whole(chat, "summarize"))
        assert "offered" not in s.store.chats.messages(chat)[-1].stats
    assert done.report.mode == "summarize"
    assert done.report.answer


@pytest.mark.parametrize("summaries", ["extract", "write"])
def test_the_summary_of_all_is_an_answer_of_the_chat(opened, valley, summaries):
    with opened(summaries=summaries) as s:
        chat, events = asked(s, valley, "Summarize the rivers.")
        first = events[-1].report.message
        events = list(s.run(s.workflows.chats.ask_whole(chat, "summarize")))
        (plan,) = kinds(events, Planned)
        messages = s.store.chats.messages(chat)
        assert [m.text for m in s.store.chats.replies(chat, messages[0].id)][1] == messages[-1].text
    report = events[-1].report
    assert (plan.mode, report.mode, report.stopped, report.chat) == ("summarize", "summarize", "eos", chat)
    assert "".join(t.text for t in kinds(events, Token)).strip() == report.answer == messages[-1].text.strip()
    assert messages[-1].id == report.message != first
    assert messages[-1].citations == report.citations
    assert messages[-1].stats["mode"] == "summarize"
    if summaries == "extract":
        text = valley.read_text()
        assert report.citations
        assert all(text[c["start"] : c["end"]] == c["quote"] for c in report.citations)
        assert [report.answer[: c["at"]].endswith(c["quote"].rstrip()) for c in report.citations]
    else:
        assert kinds(events, Progress)
        assert report.tokens.prompt > 2000


def test_two_documents_are_summarized_under_their_names(opened, valley, document):
    with opened(summaries="extract", mode="retrieve") as s:
        chat = s.workflows.chats.start([str(valley), str(document)]).id
        list(s.run(s.workflows.chats.ask(chat, "Summarize the rivers.")))
        *_, done = s.run(s.workflows.chats.ask_whole(chat, "summarize"))
    answer = done.report.answer
    assert answer.startswith("### the valley.txt\n")
    assert "\n\n### rivers.txt\n" in answer
    ends = [answer[: c["at"]].split()[-1] for c in done.report.citations]
    assert ends == [c["quote"].split()[-1] for c in done.report.citations]


def test_every_passage_is_asked_in_a_chat_that_reads_passages(opened, valley):
    with opened() as s:
        chat, _ = asked(s, valley, "List all rivers.")
        events = list(s.run(s.workflows.chats.ask_whole(chat, "everywhere")))
        assert s.store.chats.messages(chat)[-1].stats["mode"] == "everywhere"
    assert kinds(events, PassageAnswered)
    assert events[-1].report.everywhere.asked == events[-1].report.everywhere.passages > 5


def test_a_summary_that_is_stopped_leaves_the_chat_as_it_was_and_goes_on_later(opened, valley):
    with opened(summaries="write", max_tokens=200) as s:
        chat, _ = asked(s, valley, "Summarize the rivers.")
        said = len(s.store.chats.tree(chat))
        events, counted = [], 0
        for event in s.run(s.workflows.chats.ask_whole(chat, "summarize")):
            events.append(event)
            counted += isinstance(event, Progress) and event.phase == "sections"
            if counted == 2:
                s.cancel()
        assert events[-1].report.stopped == "cancelled"
        assert len(s.store.chats.tree(chat)) == said
        *_, done = s.run(s.workflows.chats.ask_whole(chat, "summarize"))
    assert done.report.stopped == "eos"
    assert done.report.answer


def test_a_mark_holds_for_the_whole_too(opened, valley):
    with opened(summaries="extract") as s:
        chat, _ = asked(s, valley, "Summarize the rivers.")
        *_, done = s.run(s.workflows.chats.ask_whole(chat, "summarize", "40%"))
    assert done.report.until["characters"] < len(valley.read_text()) // 2
    assert all(c["end"] <= done.report.until["characters"] for c in done.report.citations)


def test_ways_that_are_not_possible_are_refused_in_one_line(opened, valley):
    with opened() as s:
        chat, _ = asked(s, valley, "Summarize the rivers.")
        with pytest.raises(UsageError, match="there is no way 'guess'"):
            list(s.run(s.workflows.chats.ask_whole(chat, "guess")))
        s.store.chats.set(chat, {"library": True})
        with pytest.raises(UsageError, match="cannot be summarized at once"):
            list(s.run(s.workflows.chats.ask_whole(chat, "summarize")))


def test_the_time_of_a_summary_is_what_was_measured_or_unknown(opened, valley, monkeypatch):
    monkeypatch.setattr(summary_time, "MIN_RATED", 100)
    with opened(summaries="extract") as s:
        chat, events = asked(s, valley, "Summarize the rivers.")
        assert kinds(events, WholeOffered)[0].ways == {"summarize": None}, "nothing was measured"
        start = time.perf_counter()
        list(s.run(s.workflows.chats.ask_whole(chat, "summarize")))
        took = time.perf_counter() - start
        *_, events = [list(s.run(s.workflows.chats.ask(chat, "Summarize the valley.")))]
        (offer,) = kinds(events, WholeOffered)
    assert 0 < offer.ways["summarize"] <= took


def test_before_the_first_summary_its_time_comes_from_the_models_rates(opened, valley):
    with opened(summaries="write", max_tokens=40) as s:
        _, events = asked(s, valley, "How long is the river Quell?")
        assert isinstance(events[-1], Done)
        builder = s.workflows.questions._builder
        document = s.workflows.read(str(valley))
        s.store.caches.note_rate(builder.fingerprint, 1000.0)
        s.store.caches.note_rate(builder.fingerprint, 50.0, ANSWER_RATE)
        seconds = estimate_summary_seconds(builder, [document])
        twice = estimate_summary_seconds(builder, [document, StoredDocument(*document)])
    tokens = len(valley.read_text())
    assert tokens / 1000 + 120 / 50 < seconds < 10 * tokens / 1000 + 60
    assert twice == pytest.approx(2 * seconds)
    assert not [n for n in kinds(events, Note) if "may ask about" in n.text]
