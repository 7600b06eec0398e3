"""Focus: a question about a long document that was read whole sees the pages of its passages only."""

import json
from pathlib import Path

import pytest
from ask_in_process import session
from tiny_adapters import save_adapter

from localctx.engine.decoding.attribution import pages_of_text
from localctx.engine.events import Done
from localctx.kv.cache import Cache
from localctx.shape import PAGE

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7?"


@pytest.fixture(scope="module")
def reader(sharp_model, tmp_path_factory) -> Path:
    """An adapter that was measured to use 100 tokens at once, and 9,000 with focus."""
    folder = save_adapter(tmp_path_factory.mktemp("adapters") / "focused", sharp_model)
    measured = {"effective": 100, "focused": 9_000, "passages": 1}
    (folder / "reader.json").write_text(json.dumps(measured))
    return folder


@pytest.fixture
def rivers(tmp_path: Path) -> Path:
    """A document of several passages, one of which is about river 7."""
    parts = [f"River {i} is {i} km long. " + f"Boats of type {i} sail on it all year. " * 6 for i in range(12)]
    file = tmp_path / "rivers.txt"
    file.write_text("\n\n".join(parts))
    return file


def asked(home, model, reader, file, question=QUESTION, **settings) -> dict:
    how = {"adapter": str(reader), "effective_context": 0, "max_tokens": 4, "careful": "off"}
    with session(home, model, **how | settings) as s:
        *_, done = s.stream(question, [str(file)])
    assert isinstance(done, Done)
    return done.report.to_json()


def test_a_long_document_is_read_whole_and_kept_but_only_passages_are_seen(home, sharp_model, reader, rivers):
    """The second question, in a new session, reuses the pages of the whole document, and evicts the same again."""
    first = asked(home, sharp_model, reader, rivers)
    again = asked(home, sharp_model, reader, rivers)
    assert first["mode"] == again["mode"] == "full"
    evicted = first["kv"]["evicted"]
    assert 0 < sum(e["stop"] - e["start"] for e in evicted) < first["tokens"]["prompt"] - PAGE
    assert again["kv"]["evicted"] == evicted
    assert again["tokens"]["reused"] > 0.9 * again["tokens"]["prompt"]
    assert again["answer"] == first["answer"]


@pytest.mark.parametrize(
    ("question", "settings"),
    [
        ("Summarize it.", {}),
        (QUESTION, {"mode": "full"}),
        (QUESTION, {"effective_context": 9_000}),
        (QUESTION, {"keep": "h2o:512"}),
    ],
)
def test_whole_texts_are_seen_whole(home, sharp_model, reader, rivers, monkeypatch, question, settings):
    """For a question about the whole, where the user wants it, within what was measured, and under other keepers."""
    monkeypatch.setattr(Cache, "keep_pages", lambda *args: pytest.fail("focused"))
    assert asked(home, sharp_model, reader, rivers, question, **settings)["mode"] == "full"


def test_a_follow_up_is_searched_with_the_question_before_it(home, sharp_model, reader, rivers, monkeypatch):
    """ "And how long?" alone says nothing about the river."""
    kept, keep = [], Cache.keep_pages
    monkeypatch.setattr(Cache, "keep_pages", lambda cache, pages: (kept.append(pages), keep(cache, pages))[1])
    with session(home, sharp_model, adapter=str(reader), effective_context=0, max_tokens=4, careful="off") as s:
        chat = s.workflows.chats.start([str(rivers)]).id
        for question in ("Which boats sail on river 7?", "And how long?"):
            list(s.run(s.workflows.chats.ask(chat, question)))
    assert kept[0] == kept[1]


def test_pages_of_text_are_those_that_spell_it(home, sharp_model):
    """A page has 64 tokens, which are bytes here."""
    texts = ["x" * 200, "y" * 200]
    heading, between = "Document:\n", "\n\nDocument 2:\n"
    with session(home, sharp_model) as s:
        tokenizer = s.model.tokenizer
        tokens = tokenizer.encode(f"{heading}{texts[0]}{between}{texts[1]}")
        pages = pages_of_text(tokenizer, tokens, texts, [(0, 100, 130), (1, 0, 1)])
    first, second = len(heading) + 100, len(heading + texts[0] + between)
    assert pages == {first // PAGE, (first + 29) // PAGE, second // PAGE}


def test_the_command_says_how_much_the_answer_saw(run, sharp_model, reader, rivers):
    """And how to show it all."""
    how = ("--model", sharp_model, "--adapter", reader, "--effective-context", 0, "--max-tokens", 4)
    seen, whole = (run("ask", rivers, QUESTION, *how, "--mode", mode).stderr for mode in ("auto", "full"))
    assert "the answer saw" in seen
    assert "--mode full shows it all" in seen
    assert "the answer saw" not in whole
