"""Models with layers that remember in states: their snapshots, what they cannot do, and their chats. That they keep
what the engine promises of any model is shown in test_family_promises.py.
"""

import shutil
from pathlib import Path

import pytest
from ask_in_process import ask, session
from hybrid_models import HYBRIDS, save_hybrid_model
from kept_rows import damage, rows
from tiny_models import TEMPLATE

from localctx.engine.events import Progress
from localctx.errors import UsageError
from localctx.models.decoder.local_model import LocalModel
from localctx.shape import PAGE
from localctx.store.bundle import export_document

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7?"


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {kind: save_hybrid_model(folder / kind, kind) for kind in HYBRIDS}


@pytest.fixture
def long_document(tmp_path) -> Path:
    """A text that takes several snapshots, also of a recurrence."""
    path = tmp_path / "long.txt"
    path.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(400)))
    return path


@pytest.fixture(params=("lfm2", "qwen3_5_text"))
def model(request, models) -> Path:
    """One whose states are known after each page, and one whose are known where a pass ends."""
    return models[request.param]


def test_snapshots_and_pages_have_the_bytes_that_the_shape_says(home, model, long_document):
    with session(home, model, dtype="bf16", kv="int8", max_tokens=4) as s:
        list(s.prepare(str(long_document)))
        shape, (row,) = s.model.shape, s.store.documents.all()
        kept = s.store.documents.get(row.id)
    pages, snapshots = rows(home)
    assert {r["bytes"] for r in snapshots} == {shape.state_bytes(2)}
    whole = [r["bytes"] for r in pages if len(r["tokens"]) == 4 * PAGE]
    assert {*whole} == {shape.page_bytes("int8"), shape.page_bytes("int8", sinks=True)}
    tokens = sum(len(r["tokens"]) // 4 for r in pages)
    assert len(snapshots) >= tokens // shape.snapshot_step("int8", 2)
    assert kept


@pytest.mark.parametrize("kind", HYBRIDS)
def test_a_damaged_snapshot_is_a_miss_and_changes_no_answer(home, models, kind, document):
    cold = ask(home, models[kind], document, dtype="f32", max_tokens=8)
    _, snapshots = rows(home)
    damage(home, snapshots)
    again = ask(home, models[kind], document, dtype="f32", max_tokens=8)
    assert (again.reused, again.ids) == (0, cold.ids)
    assert any("snapshot fails its checksum" in note for note in again.notes)
    assert ask(home, models[kind], document, dtype="f32", max_tokens=8).reused > 600


@pytest.mark.parametrize(
    ("setting", "problem"),
    [({"keep": "sink-window:512"}, "drop"), ({"keep": "snapkv:512"}, "drop"), ({"rope": "yarn:2"}, "longer window")],
)
def test_what_states_cannot_do_is_refused_in_a_sentence(home, model, document, setting, problem):
    with pytest.raises(UsageError, match=f"has layers that remember .*{problem}"):
        ask(home, model, document, **setting)


def test_texts_read_alone_are_not_put_together(home, model, document, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("Lake 1 is deep.\n" * 40)
    with pytest.raises(UsageError, match="texts that were read alone cannot be put together"):
        ask(home, model, document, other, blend="on")


def test_pages_may_be_selected(home, model, long_document):
    assert ask(home, model, long_document, dtype="f32", max_tokens=4, keep="select:512").ids


# Chats


@pytest.fixture
def read(monkeypatch) -> list[int]:
    """The tokens of each pass of a model."""
    passes, plain = [], LocalModel.forward_each

    def count(self, requests, *how):
        passes.extend(len(request.tokens) for request in requests)
        return plain(self, requests, *how)

    monkeypatch.setattr(LocalModel, "forward_each", count)
    return passes


@pytest.mark.parametrize("kept", [1, 1 << 25])
def test_after_an_answer_only_its_end_is_read_again(home, model, long_document, monkeypatch, read, kept):
    """A template that leaves something out of earlier answers makes a sequence go back; states of few lengths are kept
    in memory, of those of 50 MB only one.
    """
    monkeypatch.setattr("localctx.kv.sequence_states.KEPT_BYTES", kept)
    template = TEMPLATE.replace("<s>assistant\n{% endif", "<s>assistant\n(thinking)\n{% endif")
    assert template != TEMPLATE
    folder = home.parent / "thinking"
    shutil.copytree(model, folder)
    (folder / "chat_template.jinja").write_text(template)
    with session(home, folder, dtype="f32", max_tokens=80, chunk=256) as s:
        chat = s.workflows.chats.start([str(long_document)]).id
        *_, first = s.run(s.workflows.chats.ask(chat, QUESTION))
        for question in ("And river 3?", "And river 5?"):
            read.clear()
            *_, done = s.run(s.workflows.chats.ask(chat, question))
            assert done.report.tokens.reused > 0.9 * first.report.tokens.prompt
            assert sum(read) < 1000


def test_a_full_chat_is_not_told_to_drop_its_middle(home, model, document):
    with session(home, model, dtype="f32", max_tokens=4) as s:
        chat = s.workflows.chats.start([str(document)]).id
        list(s.run(s.workflows.chats.ask(chat, QUESTION)))
        with pytest.raises(UsageError, match="summarize, or begin a new one"):
            list(s.run(s.workflows.chats.make_room(chat, "sink-window")))
        assert "keep" not in s.store.chats.get(chat).settings
        *_, done = s.run(s.workflows.chats.ask(chat, "And river 3?"))
        assert done.failed is None


def test_what_was_read_before_a_cancel_is_not_read_again(home, model, long_document):
    with session(home, model, dtype="f32", max_tokens=4, chunk=256) as s:
        for event in s.stream(QUESTION, [str(long_document)]):
            if isinstance(event, Progress) and event.done == 1024:
                s.cancel()
        s.store.pages.forget_unused()
        *_, done = s.stream(QUESTION, [str(long_document)])
        assert done.report.tokens.reused >= 1024


def test_an_exported_document_has_its_text_alone(home, tmp_path, model, document):
    with session(home, model, dtype="f32", max_tokens=4) as s:
        list(s.prepare(str(document)))
        (row,) = s.store.documents.all()
        assert export_document(s.store, row, tmp_path / "rivers.bundle")[1] == 0
