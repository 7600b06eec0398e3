"""Models with sliding and full layers: windows on disk, where a sequence goes on, and what is refused."""

from dataclasses import replace
from pathlib import Path

import promises
import pytest
from ask_in_process import session
from family_models import SIZES, save_family
from kept_rows import rows
from tiny_models import make_tokenizer
from tiny_wrapped_models import save_wrapped

from localctx.engine.events import Done, Progress
from localctx.errors import UsageError
from localctx.kv.pages import snapshot_key
from localctx.session import Session
from localctx.shape import FULL, PAGE, SLIDING
from localctx.store.bundle import export_document

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7?"


@pytest.fixture(scope="module", params=["gemma3n", "gemma4 with shared layers"])
def model(request, tmp_path_factory) -> Path:
    return save_family(tmp_path_factory.mktemp("models") / "model", request.param)


@pytest.fixture
def long_document(tmp_path) -> Path:
    """Some 5,400 tokens: one step of 4,096 and more."""
    file = tmp_path / "canals.txt"
    file.write_text("".join(f"Canal {i} is {i * 37} km long.\n" for i in range(230)))
    return file


@pytest.fixture
def asked(home, model):
    with session(home, model, dtype="f32", kv="f32", max_tokens=8, chunk=512) as s:
        assert s.runtime.paged_model.shape.window == 70
        yield s


def ask(s: Session, file: Path, question: str = QUESTION) -> Done:
    *_, done = s.stream(question, [str(file)])
    assert done.failed is None
    return done


def test_windows_are_on_disk_every_step_and_at_the_end_alone(asked, home, long_document):
    done, shape = ask(asked, long_document), asked.runtime.paged_model.shape
    pages, windows = rows(home)
    whole = [row for row in pages if len(row["tokens"]) == 4 * PAGE]
    assert {row["bytes"] for row in whole} == {shape.part_bytes("f32", FULL)}
    assert {row["bytes"] for row in windows} == {shape.part_bytes("f32", SLIDING)}
    tokens = done.report.tokens.prompt
    places = {4096, *(end // PAGE * PAGE for end in (tokens, tokens + 8))}
    assert tokens > 5000
    assert 2 * 2 <= len(windows) <= 2 * 2 * len(places), "two pages each, of the document, the prompt and the answer"
    again = ask(asked, long_document, "And canal 3?")
    assert again.report.tokens.reused > 0.95 * tokens


def test_a_page_that_the_question_filled_is_not_stored_beside_the_open_page(asked, home, tmp_path):
    (file := tmp_path / "canals.txt").write_text("".join(f"Canal {i} is {i * 37} km long.\n" for i in range(60)))
    ask(asked, file)
    pages, windows = rows(home)
    opened = [(row["name"], row["tokens"]) for row in pages if len(row["tokens"]) < 4 * PAGE]
    assert opened
    assert not {snapshot_key(page, "sliding")[0] for page in opened} & {row["name"] for row in windows}


def test_a_full_chat_goes_on_with_its_end_alone(home, tmp_path):
    """The sink page is moved into what sliding layers see, but what they kept of it is gone."""
    save_wrapped(tmp_path / "wide", "gemma3n", **SIZES, vocab_size_per_layer_input=260, sliding_window=500)
    make_tokenizer().save_pretrained(tmp_path / "wide")
    (file := tmp_path / "canals.txt").write_text("".join(f"Canal {i} is {i * 37} km long.\n" for i in range(80)))
    with session(home, tmp_path / "wide", dtype="f32", kv="f32", max_tokens=80, chunk=512) as s:
        chat = s.workflows.chats.start([str(file)]).id
        list(s.run(s.workflows.chats.ask(chat, QUESTION)))
        s.change(replace(s.settings, keep="sink-window:256"))
        *_, done = s.run(s.workflows.chats.ask(chat, "And canal 9?"))
    assert done.report.tokens.reused > 2000


def test_a_document_with_another_end_goes_on_at_a_step(asked, tmp_path, long_document):
    ask(asked, long_document)
    other = tmp_path / "other.txt"
    other.write_text(long_document.read_text()[:-300] + "No canal is longer than that.\n")
    logits, (*_, done) = promises.recorded(asked, asked.workflows.questions.ask([str(other)], QUESTION))
    assert done.report.tokens.reused == 4096
    asked.store.pages.unlink([row["name"] for some in rows(asked.store.home) for row in some])
    cold, (*_, done) = promises.recorded(asked, asked.workflows.questions.ask([str(other)], QUESTION))
    assert done.report.tokens.reused == 0
    assert promises.difference(logits, cold)[0] == 0


def test_what_was_read_before_a_cancel_is_not_read_again(asked, long_document):
    for event in asked.stream(QUESTION, [str(long_document)]):
        if isinstance(event, Progress) and event.done == 1024:
            asked.cancel()
    assert ask(asked, long_document).report.tokens.reused >= 1024


def test_the_memory_is_that_of_the_windows(asked, long_document):
    """The plan counts what is there while the last chunk is read."""
    plans = [event for event in asked.stream(QUESTION, [str(long_document)]) if hasattr(event, "kv_bytes")]
    shape, chunk = asked.runtime.paged_model.shape, 512
    tokens = plans[0].tokens + plans[0].answer_tokens
    assert plans[0].kv_bytes == shape.cache_bytes("f32", tokens, 4, chunk)
    whole = tokens // PAGE * shape.page_bytes("f32") + shape.tail_bytes(4)
    assert whole - plans[0].kv_bytes > 0.75 * (tokens // PAGE) * shape.part_bytes("f32", SLIDING)


def test_what_needs_every_token_is_refused_or_left_out(asked, home, tmp_path, long_document):
    (other := tmp_path / "lakes.txt").write_text("Lake 1 is deep.\n" * 40)
    refused = pytest.raises(UsageError, match="has layers that do not keep every token")
    with session(home, asked.settings.model, dtype="f32", blend="on") as s, refused:
        s.ask(QUESTION, [str(other), str(long_document)])
    ask(asked, other)
    (row,) = [row for row in asked.store.documents.all() if row.name == "lakes.txt"]
    assert export_document(asked.store, row, tmp_path / "lakes.bundle")[1] == 0
