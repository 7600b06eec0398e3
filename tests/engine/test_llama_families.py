"""llama.cpp's kinds of memory, kept, restored and branched: full attention, sliding windows, recurrent states."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ask_in_process import PLAIN
from required_extras import needs_llama
from tiny_ggufs import FAMILIES, link_tried, write_tiny_gguf

from localctx.models.llama_cpp import context as llama_context
from localctx.models.llama_cpp.memory import LlamaMemory
from localctx.session import Session
from localctx.settings import load_settings

pytestmark = [pytest.mark.slow, needs_llama]
QUESTION, OTHER = "How long is river 7?", "And which one is the longest?"


@pytest.fixture(scope="module", params=FAMILIES)
def gguf(request, tmp_path_factory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / f"{request.param}.gguf", request.param)


@pytest.fixture(scope="module")
def tried(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tried")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    """A text of about 6,000 tokens."""
    path = tmp_path_factory.mktemp("texts") / "rivers.txt"
    path.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(220)))
    return str(path)


@contextmanager
def session(home: Path, tried: Path, gguf: Path, **settings) -> Iterator[Session]:
    if not home.exists():
        link_tried(home, tried)
    given = {**PLAIN, "chunk": 512, "model": str(gguf), "engine": "llama.cpp", "max_tokens": 8, "mode": "full"}
    with Session(load_settings(home=home, **{**given, **settings})) as session:
        yield session


def test_restored_equals_cold_and_branches_go_back_to_a_snapshot(home, tried, gguf, text, tmp_path):
    with session(home, tried, gguf) as first:
        cold = first.ask(QUESTION, [text])
    with session(home, tried, gguf) as later:
        warm, other = later.ask(QUESTION, [text]), later.ask(OTHER, [text])
        branch = later.ask(QUESTION, [text], until="80%")
    with session(tmp_path / "other", tried, gguf) as anew:
        assert anew.ask(OTHER, [text], persist=False).text == other.text
        cold_branch = anew.ask(QUESTION, [text], until="80%", persist=False)
    assert (cold.stats.reused, cold_branch.stats.reused) == (0, 0)
    assert warm.text == cold.text
    assert min(warm.stats.reused, other.stats.reused) >= 0.9 * warm.stats.prompt
    assert branch.text == cold_branch.text
    assert branch.stats.reused >= 4096  # of about 4,700 that are the same


def test_a_chat_goes_back_to_the_documents_end_where_a_turn_is_edited(home, tried, gguf, text):
    with session(home, tried, gguf) as first:
        first.sources = (text,)
        chat = first.chat()
        chat.ask(QUESTION)
        second = chat.ask(OTHER)
        assert second.stats.prefilled < 300
        edited = chat.edit("And the shortest?")
        assert edited.stats.reused >= 0.9 * edited.stats.prompt
        stored = chat.id
    with session(home, tried, gguf) as later:
        third = later.chat(stored).ask("And the next?")
        assert third.stats.reused >= 0.9 * third.stats.prompt


def test_more_sequences_than_the_memory_has_room_for_take_turns(home, tried, gguf, text):
    with session(home, tried, gguf, memory="24MiB", n=3, temperature=0.7, seed=3, mode="retrieve") as small:
        answer = small.ask(QUESTION, [text])
    assert answer.mode == "retrieve"
    assert answer.citations


def test_a_cancel_inside_a_native_batch_ends_the_request_and_nothing_else(home, tried, gguf, text, monkeypatch):
    calls, forward = [0], LlamaMemory.forward

    def cancel_in_the_third(memory, sequences, tokens, num_logits, cancelled):
        calls[0] += 1
        asked = iter(range(3))
        late = (lambda: next(asked, None) is None) if calls[0] == 3 else cancelled
        return forward(memory, sequences, tokens, num_logits, late)

    monkeypatch.setattr(llama_context, "POLL", 0)  # or a small batch ends before the third look
    with session(home, tried, gguf) as first:
        monkeypatch.setattr(LlamaMemory, "forward", cancel_in_the_third)
        cancelled = first.ask(QUESTION, [text])
        assert cancelled.stopped == "cancelled"
        monkeypatch.setattr(LlamaMemory, "forward", forward)
        answer = first.ask(QUESTION, [text])
    with session(home, tried, gguf) as later:
        assert later.ask(QUESTION, [text], persist=False).text == answer.text


def test_the_next_question_finds_the_document_still_in_memory(home, tried, gguf, text, monkeypatch, tmp_path):
    def append(memory, sequence, stop, state):
        raise AssertionError("a snapshot was read")

    with session(home, tried, gguf) as first:
        first.ask(QUESTION, [text])
        monkeypatch.setattr(LlamaMemory, "append", append)
        again, other = first.ask(QUESTION, [text]), first.ask(OTHER, [text])
        first.sources = (text,)
        chat = first.chat()
        turns = [chat.ask(QUESTION), chat.ask(OTHER)]
    monkeypatch.undo()
    with session(tmp_path / "other", tried, gguf) as anew:
        assert [anew.ask(q, [text], persist=False).text for q in (QUESTION, OTHER)] == [again.text, other.text]
    assert min(a.stats.reused / a.stats.prompt for a in (again, other, *turns)) > 0.9
