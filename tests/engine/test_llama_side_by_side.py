"""Sequences of several requests in one native batch of llama.cpp: how many batches they take, and what they answer."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from ask_in_process import PLAIN
from required_extras import needs_llama
from tiny_ggufs import link_tried, write_tiny_gguf

from localctx.engine.events import Done
from localctx.models.llama_cpp import model as llama_model
from localctx.models.llama_cpp.context import LlamaContext
from localctx.serving.worker import EngineWorker
from localctx.session import Session
from localctx.settings import Settings, load_settings

pytestmark = [pytest.mark.slow, needs_llama]
QUESTIONS = [f"How long is river {i}?" for i in range(8)]
TOKENS = 24  # of an answer
ASKED = 150  # tokens of a question, a byte each, and of what stands around it
FAMILIES = {"llama": 8, "granitehybrid": 3}
"""Families, and how many of their sequences are resident at once: recurrent states have memory for few."""


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def gguf(family, tmp_path_factory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf", family)


@pytest.fixture(scope="module")
def tried(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tried")


@pytest.fixture
def settings(home, tried, gguf, monkeypatch) -> Settings:
    """Settings of a tiny model, as if its weights outweighed a document's KV as those of real models do."""
    monkeypatch.setattr(llama_model, "WEIGHTS_PER_KV", 1e-3)
    link_tried(home, tried)
    given = {**PLAIN, "chunk": 512, "max_tokens": TOKENS, "mode": "full", "n": 1}
    return load_settings(home=home, model=str(gguf), engine="llama.cpp", **given)


@pytest.fixture
def decoded(monkeypatch) -> list[int]:
    """The number of sequences in each native batch, as the test goes on."""
    batches, decode = list[int](), LlamaContext.decode

    def counted(context, rows, cancelled):
        batches.append(len(rows))
        return decode(context, rows, cancelled)

    monkeypatch.setattr(LlamaContext, "decode", counted)
    return batches


@contextmanager
def worker(settings: Settings, slots: int) -> Iterator[EngineWorker]:
    with closing(EngineWorker(settings, "test", slots)) as worker:
        yield worker


def ask(worker: EngineWorker, document: Path, questions=QUESTIONS) -> list:
    """The reports of ``questions`` asked at once."""

    def asking(question):
        return lambda session: session.workflows.questions.ask([str(document)], question)

    streams = [worker.submit(asking(question)) for question in questions]
    return [event.report for stream in streams for event in stream if isinstance(event, Done)]


def test_eight_answers_side_by_side_take_about_the_batches_of_one(settings, document, decoded, family):
    with worker(settings, 8) as alone:
        ask(alone, document, QUESTIONS[:1])  # reads the document, which is kept
        decoded.clear()
        reports = [ask(alone, document, [question])[0] for question in QUESTIONS]
        one_by_one = len(decoded)
        decoded.clear()
        together = ask(alone, document)
    assert [report.tokens.generated for report in together] == [TOKENS] * 8
    assert [report.answer for report in together] == [report.answer for report in reports]
    resident = FAMILIES[family]
    assert max(decoded) == resident
    assert one_by_one >= 8 * TOKENS
    assert len(decoded) <= one_by_one / resident + 3 * len(QUESTIONS)  # prompts are read a few batches each


def test_sequences_join_and_leave_between_two_batches(settings, document, decoded):
    with worker(settings, 4) as few:
        reports = ask(few, document)  # four wait until another has ended
    assert [report.tokens.generated for report in reports] == [TOKENS] * 8
    assert len(decoded) < 0.6 * sum(decoded)


def test_several_answers_of_one_question_share_its_prompt(settings, document, decoded):
    given = {**vars(settings), "n": 4, "temperature": 0.8, "seed": 1}
    with Session(Settings(**given)) as session:
        session.ask(QUESTIONS[0], [str(document)])
        *_, done = session.stream(QUESTIONS[0], [str(document)])
    with Session(Settings(**given | {"n": 1, "seed": 3})) as third:
        assert third.ask(QUESTIONS[0], [str(document)]).text == done.report.answers[2]
    assert done.report.tokens.prefilled < ASKED
    assert done.report.tokens.reused > 0.8 * done.report.tokens.prompt


def test_chats_that_take_turns_say_what_each_says_alone(settings, document):
    with Session(settings) as alone:
        alone.sources = (str(document),)
        chats = [alone.chat() for _ in range(3)]
        turns = [[chat.ask(question).text for question in QUESTIONS[:3]] for chat in chats]
    assert turns[0] == turns[1] == turns[2]
    with Session(settings) as mixed:
        mixed.sources = (str(document),)
        chats = [mixed.chat() for _ in range(3)]
        in_turn = [[chat.ask(question).text for chat in chats] for question in QUESTIONS[:3]]
    assert in_turn == [[answer] * 3 for answer in turns[0]]
