"""What every engine promises: kept documents, chats, branches, several answers, passages and cancels. One file, two
engines."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
from ask_in_process import PLAIN
from required_extras import needs_llama
from tiny_ggufs import link_tried, write_tiny_gguf

import localctx
from localctx import events
from localctx.errors import TooLong, UsageError
from localctx.serving.worker import EngineWorker
from localctx.session import Session
from localctx.settings import load_settings

pytestmark = pytest.mark.slow

QUESTION, OTHER = "How long is river 7?", "Which one is the longest of them all?"


@dataclass(frozen=True)
class Engine:
    """An engine with a model: a text of ``lines`` is read, of which a line has about ``per_line`` tokens; a question,
    and what stands around it, has at most ``asked`` tokens.
    """

    name: str
    model: str
    lines: int
    per_line: int
    asked: int

    @property
    def tokens(self) -> int:
        """About what the text has, and rather less."""
        return self.lines * self.per_line


TINY = {"lines": 110, "per_line": 26, "asked": 150}  # a byte is a token
ENGINES = [
    pytest.param(Engine("torch", "tiny_model", **TINY), id="torch"),
    pytest.param(Engine("llama.cpp", "tiny_gguf", **TINY), id="llama.cpp", marks=needs_llama),
    pytest.param(Engine("llama.cpp", "default_gguf", 36, 12, 60), id="llama.cpp-default", marks=needs_llama),
]


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory):
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf", "llama")


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    return tmp_path_factory.mktemp("tried")


@pytest.fixture(params=ENGINES)
def engine(request) -> Engine:
    return request.param


@pytest.fixture
def settings(request, engine, home, tried) -> dict:
    """The settings of a model on one of the engines."""
    link_tried(home, tried)
    model = request.getfixturevalue(engine.model)
    return {**PLAIN, "engine": engine.name, "model": str(model), "max_tokens": 6, "mode": "full", "home": home}


@pytest.fixture
def text(tmp_path, engine) -> Path:
    path = tmp_path / "rivers.txt"
    path.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(engine.lines)))
    return path


@pytest.fixture
def session(settings) -> Iterator[Session]:
    with Session(load_settings(**settings)) as session:
        yield session


def again(settings: dict) -> Session:
    """A session as after a restart."""
    return Session(load_settings(**settings))


def test_a_kept_document_gives_the_same_answer_after_a_restart(engine, settings, session, text):
    cold = session.ask(QUESTION, [text])
    assert cold.stats.reused == 0
    with again(settings) as later:
        warm = later.ask(QUESTION, [text])
        other = later.ask(OTHER, [text])
    with again(settings | {"home": settings["home"] / "other"}) as anew:
        assert anew.ask(OTHER, [text], persist=False).text == other.text
    assert warm.text == cold.text
    assert max(warm.stats.prefilled, other.stats.prefilled) < engine.asked
    assert warm.stats.reused + warm.stats.prefilled == warm.stats.prompt


def test_a_prepared_document_is_not_read_again(engine, settings, session, text):
    (*_, done) = session.prepare(str(text))
    assert done.report.kept["tokens"] == done.report.tokens["prompt"]
    assert done.failed is None
    with again(settings) as later:
        (*_, twice) = later.prepare(str(text))
        assert twice.report.tokens["prefilled"] == 0
        assert twice.report.kept == done.report.kept
        assert later.ask(QUESTION, [text]).stats.prefilled < engine.asked


def test_a_chat_goes_on_where_it_was(engine, settings, session, text):
    session.sources = (str(text),)
    chat = session.chat()
    turns = [chat.ask(question) for question in (QUESTION, OTHER, "And the shortest?")]
    for turn in turns[1:]:
        assert turn.stats.prefilled < engine.asked
    with again(settings) as later:
        fourth = later.chat(chat.id).ask("And river 3?")
        assert fourth.stats.reused > turns[-1].stats.prompt
        edited = later.chat(chat.id).edit("And river 4?")
        assert edited.stats.prefilled < 200
    with again(settings | {"home": settings["home"] / "other"}) as anew:
        anew.sources = (str(text),)
        fresh = anew.chat()
        assert [fresh.ask(q).text for q in (QUESTION, OTHER, "And the shortest?", "And river 3?")] == [
            *(turn.text for turn in turns),
            fourth.text,
        ]


def test_a_question_on_the_beginning_of_a_document_reuses_what_is_the_same(settings, session, text):
    session.ask(QUESTION, [text])
    half = session.ask(QUESTION, [text], until="50%")
    assert half.stats.reused > 0.8 * half.stats.prompt
    with again(settings | {"home": settings["home"] / "other"}) as anew:
        assert anew.ask(QUESTION, [text], until="50%").text == half.text


def test_several_answers_and_beams_share_one_prefill(engine, settings, text):
    with again(settings | {"n": 3, "temperature": 0.8, "seed": 1}) as session:
        answers = next(e for e in session.stream(QUESTION, [text]) if isinstance(e, events.Done)).report
        assert len(answers.answers) == 3
        assert answers.tokens.prefilled == answers.tokens.prompt
    with again(settings | {"beams": 3}) as session:
        assert session.ask(QUESTION, [text]).stats.prefilled < engine.asked


def test_passages_are_ranked_and_answer(settings, text):
    with again(settings | {"mode": "retrieve"}) as session:
        answer = session.ask(QUESTION, [text])
        assert answer.mode == "retrieve"
        assert answer.citations
        again_ = session.ask(QUESTION, [text])
    assert again_.text == answer.text
    assert again_.stats.reused > 0


def test_a_cancel_keeps_what_was_read(engine, settings, text):
    chunk = 64 if engine.tokens < 1024 else 512
    with again(settings | {"chunk": chunk}) as session:
        stream, reading = session.stream(QUESTION, [text]), 0
        for event in stream:
            if isinstance(event, events.Progress) and event.phase == "reading":
                reading = event.done
                if reading >= 2 * chunk:
                    assert session.cancel()
        done = event
        assert isinstance(done, events.Done)
        assert done.report.stopped == "cancelled"
        assert session.ask(QUESTION, [text]).stats.reused >= 2 * chunk


def test_questions_of_several_sessions_are_answered_together(settings, text):
    def asking(question):
        return lambda session: session.workflows.questions.ask([str(text)], question)

    with closing(EngineWorker(load_settings(**settings), "test", 3)) as worker:
        streams = [worker.submit(asking(question)) for question in (QUESTION, OTHER, "And river 3?")]
        reports = [event.report for stream in streams for event in stream if isinstance(event, events.Done)]
    assert [report.tokens.generated for report in reports] == [6, 6, 6]


def test_a_summary_is_written(engine, settings, text):
    with again(settings | {"max_tokens": 24}) as session:
        session.sources = (str(text),)
        (summary,) = session.summarize(length="short")
    assert summary.tokens["prompt"] > engine.tokens


def test_other_settings_are_another_fingerprint(settings, session, text):
    session.ask(QUESTION, [text])
    for change in ({"kv": "int8" if settings["engine"] == "llama.cpp" else "f32"}, {"rope": "linear:2"}):
        with again(settings | change) as other:
            answer = other.ask(QUESTION, [text], persist=True)
            assert answer.stats.reused == 0, change


def test_the_python_api_opens_either(engine, settings, text):
    with localctx.open(text, **settings) as docs:
        assert docs.ask(QUESTION).stats.prompt > engine.tokens


def test_a_codec_that_an_engine_lacks_is_refused_by_name(settings, text):
    missing = "f16" if settings["engine"] == "torch" else "int2"
    with again(settings | {"kv": missing}) as session, pytest.raises(UsageError, match=f"no {missing} KV"):
        session.ask(QUESTION, [text])


def test_an_answer_in_the_documents_words_is_cited_to_the_character(settings, text):
    with again(settings | {"answers": "quote"}) as session:
        answer = session.ask(QUESTION, [text])
    assert answer.decoding == "quote"
    assert answer.text
    for citation in answer.citations:
        assert text.read_text()[citation.start : citation.end] == citation.quote
        assert citation.source == "quote"


def test_sources_of_a_whole_document_say_how_they_were_found(engine, settings, text):
    with again(settings) as session:
        citations = session.ask(QUESTION, [text]).citations
    assert citations
    assert {c.source for c in citations} <= ({"words"} if engine.name == "llama.cpp" else {"attention", "passage"})
    assert all(text.read_text()[c.start : c.end] == c.quote for c in citations)


def test_a_refused_plan_leaves_nothing_in_memory(session, text, monkeypatch):
    session.ask(QUESTION, [str(text)])
    engine, opened = session.workflows.questions._builder.engine, []
    open_cache = engine.open_cache
    monkeypatch.setattr(engine, "open_cache", lambda planned: opened.append(open_cache(planned)) or opened[-1])
    monkeypatch.setattr(engine, "plan", Mock(side_effect=TooLong("it is too long", "ask less")))
    with pytest.raises(TooLong):
        session.ask(OTHER, [str(text)])
    assert [cache.length for cache in opened] == [0]
