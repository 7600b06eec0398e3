"""Families with a text model inside, heads of several widths, shared layers, or layers that remember in states: what
the engine promises of any model holds for them too.
"""

import signal
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

import promises
import pytest
from ask_in_process import said, session, start
from clock import PATIENCE
from family_models import FAMILIES, WRAPPED, save_family
from kept_rows import damage, rows
from tiny_models import KEPT

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Done, Note, Progress
from localctx.session import Session
from localctx.shape import PAGE
from localctx.store.store import Store

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7?"
BOUND = {"f32": 1e-4, "bf16": 0.05}  # of logits, where chunks are of another size
SHARP = 0.25  # of those of Gemma 4 in bf16, which are as far from those in f32: it does not scale its attention
RECURRENT = ("qwen3_5", "granitemoehybrid")  # of a long document their first snapshot is that after 4,096 tokens
SLIDING = tuple(name for name in WRAPPED if name.startswith("gemma"))  # what their windows see is kept at some places


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Callable[[str], Path]:
    """The folder of a model of a family, made once. Read only."""
    folder = tmp_path_factory.mktemp("models")
    return cache(lambda family: save_family(folder / family.replace(" ", "-"), family))


# Logits


@pytest.fixture(scope="module", params=["f32", "bf16"])
def precision(request) -> str:
    return request.param


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def asked(family, precision, models, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with session(home, models(family), dtype=precision, max_tokens=12, kv="f32") as s:
        assert str(s.model.precision).endswith({"f32": "float32", "bf16": "bfloat16"}[precision])
        yield s


def test_what_was_kept_gives_the_same_logits_to_the_bit(asked, document):
    assert promises.difference(*promises.restored(asked, document, QUESTION))[0] == 0


def test_a_question_beside_others_gives_the_same_logits_to_the_bit_as_alone(asked, document):
    assert promises.difference(*promises.alone(asked, document, QUESTION, ["And river 3?"]))[0] == 0


def test_drafting_gives_the_same_logits_to_the_bit(asked, document):
    """States cannot go back to before a guess: models that have some guess nothing."""
    assert promises.difference(*promises.drafted(asked, document, QUESTION))[0] == 0


def test_chunks_of_another_size_give_nearly_the_same_logits(asked, family, precision, document):
    _, most = promises.difference(*promises.chunked(asked, document, QUESTION, (64, 256)))
    assert most < (SHARP if family.startswith("gemma4") and precision == "bf16" else BOUND[precision])


def test_an_answer_hangs_on_how_a_document_begins(asked, document):
    """Otherwise the others of these tests would not notice that its first pages are wrong."""
    one, text = promises.ask(asked, document, QUESTION), document.read_text()
    document.write_text(text.replace("River 0 is", "Canal 9 is", 1))
    other = promises.ask(asked, document, QUESTION)
    (at, *_) = sorted(position for position in one if position > KEPT)
    assert (one[at] - other[at]).abs().max() > 5 * BOUND["f32"]


# Pages and snapshots on disk


class Answered(NamedTuple):
    """The logits of a question, how many of its tokens were kept, and its notes."""

    logits: promises.Logits
    reused: int
    notes: list[str]


def answered(session: Session, asking: EngineCoroutine[None]) -> Answered:
    """A question asked in ``session``, of which everything could be kept."""
    logits, (*events, done) = promises.recorded(session, asking)
    assert isinstance(done, Done)
    assert done.failed is None
    return Answered(logits, done.report.tokens.reused, [e.text for e in events if isinstance(e, Note)])


def ask(home: Path, model: Path, file: Path) -> Answered:
    """One question on ``file`` in a session of its own."""
    with session(home, model, dtype="f32", max_tokens=8) as s:
        return answered(s, s.workflows.questions.ask([str(file)], QUESTION))


kept = pytest.mark.parametrize("family", [*WRAPPED, "lfm2", "granitemoehybrid"])


@kept
def test_what_is_damaged_is_a_miss_and_changes_no_logits(home, models, family, document):
    model = models(family)
    cold = ask(home, model, document)
    damage(home, rows(home)[0][5:6])
    again, mended = ask(home, model, document), ask(home, model, document)
    assert any("fails its checksum" in note for note in again.notes)
    assert again.reused <= 5 * PAGE
    assert mended.reused >= 0.95 * KEPT
    assert mended.notes == []
    damage(home, [row for some in rows(home) for row in some])
    nothing = ask(home, model, document)
    assert nothing.reused == 0
    assert [promises.difference(cold.logits, other.logits)[0] for other in (again, mended, nothing)] == [0, 0, 0]


@kept
def test_an_edited_question_is_answered_as_where_nothing_was_kept(home, models, family, document):
    """Pages are f32: those of fewer bits depend on where in a chunk a question begins."""
    settings = {"dtype": "f32", "kv": "f32", "max_tokens": 8}
    with session(home, models(family), **settings) as s:
        chat = s.workflows.chats.start([str(document)]).id
        for question in (QUESTION, "And river 3?"):
            answered(s, s.workflows.chats.ask(chat, question))
        questions = [m.id for m in s.store.chats.messages(chat) if m.role == "user"]
        warm = [edit(s, chat, question) for question in reversed(questions)]
    with session(home, models(family), **settings) as s:
        cold = [edit(s, chat, question) for question in reversed(questions) if forget_all(s)]
    assert [a.reused for a in cold] == [0, 0]
    for one, other in zip(warm, cold, strict=True):
        assert one.reused >= 0.95 * KEPT
        assert promises.difference(one.logits, other.logits)[1] < BOUND["f32"]


def edit(session: Session, chat: str, question: int) -> Answered:
    return answered(session, session.workflows.chats.edit(chat, "And river 5?", question))


def forget_all(session: Session) -> bool:
    """Forget all pages and snapshots; returns whether there were any."""
    pages, snapshots = rows(session.store.home)
    session.store.pages.unlink([row["name"] for row in (*pages, *snapshots)])
    return bool(pages)


def read_slowly(say: Callable, home: Path, model: Path, ready: Path, file: Path) -> None:
    """Keep ``ready``, and say why it could not be; then say each step of reading ``file``, and wait to be killed."""
    with session(home, model, dtype="f32", max_tokens=4) as s:
        *_, done = s.prepare(str(ready))
        say(done.failed)
        for event in s.prepare(str(file)):
            if isinstance(event, Progress):
                say(event.done)
        time.sleep(PATIENCE)


@kept
def test_killed_while_pages_and_snapshots_are_written_none_that_was_ready_is_lost(
    home, tmp_path, models, family, document
):
    """What is read is written every 1,024 tokens."""
    written = 4096 if family in RECURRENT else 1024
    (file := tmp_path / "canals.txt").write_text(
        "".join(f"Canal {i} is {i * 37} km long.\n" for i in range(written // 20))
    )
    cold = [ask(tmp_path / "other", models(family), path) for path in (document, file)]
    kill_reading(written + 256, home, models(family), document, file)
    assert len(rows(home)[0]) >= (KEPT + written) // PAGE
    with closing(Store(home)) as store:
        assert store.pages.verify() == []
    warm = [ask(home, models(family), path) for path in (document, file)]
    assert [promises.difference(a.logits, b.logits)[0] for a, b in zip(cold, warm, strict=True)] == [0, 0]
    assert warm[0].reused >= 0.95 * KEPT
    assert warm[1].reused >= (0 if family in SLIDING else written)


def kill_reading(tokens: int, *what: Path) -> None:
    """Kill ``read_slowly`` when it has read so much."""
    process, connection = start(read_slowly, *what)
    assert connection.recv() is None
    while connection.recv() < tokens:
        pass
    process.kill()
    said(connection)
    process.join()
    assert process.exitcode == -signal.SIGKILL
