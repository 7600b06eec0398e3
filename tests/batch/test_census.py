"""A census: every passage of many documents is asked, the certificate adds up, and a stopped one goes on."""

import json
import os

import pytest
from ask_in_process import session

import localctx
from localctx.batch.census import Certificate, read_documents
from localctx.engine.events import Done, Progress
from localctx.store.passage_answers import StoredAnswer
from localctx.workflows.answer import everywhere
from localctx.workflows.answer.passage_question import PassageQuestion

pytestmark = pytest.mark.slow

QUESTION = "How long is the river?"
RIVERS = ("Avon", "Brue", "Cam", "Dee", "Esk")
HOW = {"max_tokens": 6, "careful": "off", "threads": 1}


@pytest.fixture
def rivers(tmp_path):
    """Five documents of one passage each, and a file that cannot be read."""
    folder = tmp_path / "rivers"
    folder.mkdir()
    for i, name in enumerate(RIVERS):
        (folder / f"{name}.txt").write_text(f"The river {name} rises among hills, and it is {i * 37 + 11} km long.\n")
    (folder / "bad.pdf").write_bytes(b"%PDF-1.7 nothing")
    return folder


@pytest.fixture
def command(run, sharp_model, monkeypatch):
    for name, value in {**HOW, "model": sharp_model}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    return run


def read(s, files):
    with s.workflows.library() as library:
        return read_documents(library, files, lambda progress: None).ids


def test_the_command_says_how_many_passages_were_asked_and_what_was_not_read(command, rivers):
    done = command("census", rivers, QUESTION)
    assert done.returncode == 3
    assert "bad.pdf" in done.stderr
    last = done.stdout.splitlines()[-1]
    assert last == "Asked 5 of 5 passages in 5 documents: 5 answered, 0 unsure, 0 without an answer; " + (
        "1 document could not be read."
    )
    found = json.loads(command("census", rivers, QUESTION, "--json").stdout)
    certificate = found["certificate"]
    assert certificate["asked"] == sum(certificate[name] for name in ("answered", "unsure", "silent")) == 5
    assert not certificate["complete"]
    assert [os.path.basename(path) for path, _ in certificate["unread"]] == ["bad.pdf"]  # noqa: PTH119
    assert found["everywhere"]["reused_answers"] == 5
    (rivers / "bad.pdf").unlink()
    assert json.loads(command("census", rivers, QUESTION, "--json").stdout)["certificate"]["complete"]


def test_only_the_likeliest_passages_are_asked_if_one_says_how_many(command, rivers):
    done = command("census", rivers / "*.txt", "How long is the river Cam?", "--best", 2)
    assert done.returncode == 0
    assert "Cam.txt" in done.stdout
    assert "Only 2 of 5 passages were asked." in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Asked 2 of 5 passages in 5 documents: 2 answered")
    found = json.loads(command("census", rivers / "*.txt", "How long is the river Cam?", "--json").stdout)
    assert found["certificate"]["asked"] == 5
    assert found["everywhere"]["reused_answers"] == 2


def test_stopped_again_and_again_it_ends_as_if_it_had_not_been(home, sharp_model, rivers, monkeypatch):
    monkeypatch.setattr(everywhere, "MAX_SIDE_BY_SIDE", 1)
    monkeypatch.setattr(everywhere, "SAVE_EVERY", 0.0)
    files = [str(rivers / f"{name}.txt") for name in RIVERS]
    with session(home.with_name("other"), sharp_model, **HOW) as s:
        ids = read(s, files)
        whole = list(s.run(s.workflows.questions.census(ids, QUESTION)))[-1]
    for asked in range(1, 5):
        with session(home, sharp_model, **HOW) as s:
            events = s.run(s.workflows.questions.census(read(s, files), QUESTION))
            next(e for e in events if isinstance(e, Progress) and e.phase == "asking passages" and e.done == asked)
            events.close()  # as when the process ends
    with session(home, sharp_model, **HOW) as s:
        done = list(s.run(s.workflows.questions.census(read(s, files), QUESTION)))[-1]
    assert isinstance(done, Done)
    assert done.report.everywhere.reused_answers == 4
    assert done.report.answer == whole.report.answer


def test_unsure_passages_are_listed_apart_and_counted_apart(home, sharp_model, rivers, monkeypatch):
    answer_of = PassageQuestion._answer_of

    def doubting(self, request, passage):
        found = answer_of(self, request, passage)
        if "Brue" in passage.text:
            return None
        return (
            StoredAnswer(passage.text.strip(), passage.start, passage.end, sure=False)
            if "Dee" in passage.text
            else found
        )

    monkeypatch.setattr(PassageQuestion, "_answer_of", doubting)
    files = [rivers / f"{name}.txt" for name in RIVERS]
    for _ in range(2):  # the second from the store
        census = localctx.census(*files, question=QUESTION, model=str(sharp_model), home=home, **HOW)
        certificate = census.certificate
        assert (certificate.answered, certificate.unsure, certificate.silent) == (3, 1, 1)
        assert sum(group.count for group in census.answer.groups) == 3
        assert "1 passage may answer it, but no answer is sure:" in census.answer.text
        assert '- "The river Dee rises' in census.answer.text
        assert len(census.answer.citations) == 4


def test_without_a_readable_document_or_a_question_the_error_says_what_to_do(command, rivers):
    done = command("census", rivers / "bad.pdf", QUESTION)
    assert (done.returncode, "nothing can be asked" in done.stderr) == (1, True)
    done = command("census", rivers)
    assert (done.returncode, "files or folders, and a question" in done.stderr) == (2, True)


def test_a_certificate_is_complete_if_all_was_asked():
    of = {"documents": 1, "passages": 3, "best": 0, "answered": 1, "unsure": 0, "silent": 2}
    assert Certificate(**of, asked=3, unread=()).complete
    assert not Certificate(**of, asked=2, unread=()).complete
    assert not Certificate(**of, asked=3, unread=(("a.pdf", "damaged"),)).complete
