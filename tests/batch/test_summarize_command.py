"""``summarize``: what is planned, written, and found done by a second run, and what a kill or a full disk leaves."""

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest
from ask_in_process import killed_command, said, start
from batch_texts import COLOURS, SMALL, counts, long_text, report_of, summaries, write_texts
from clock import seconds_since
from command_checks import assert_one_line, elsewhere
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import opened

from localctx.batch.jobs import DocumentJob, plan_jobs
from localctx.batch.markdown import FIELDS, SummaryTemplate, fields
from localctx.batch.outputs import JsonLines, file_name
from localctx.batch.run_batch import Outcome
from localctx.engine.events import Progress
from localctx.errors import UsageError
from localctx.library.citations.cite import Citation
from localctx.store.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small(home, monkeypatch, tiny_model):
    """The tiny model with one thread."""
    for name, value in {**SMALL, "model": tiny_model}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    monkeypatch.delenv("LOCALCTX_MAX_TOKENS")


@pytest.fixture
def texts(tmp_path) -> Path:
    """A folder of five short texts."""
    return write_texts(tmp_path / "texts")


# Planning


def test_files_folders_patterns_and_a_list_are_planned_once_each(texts, tmp_path):
    passed = []
    (texts / "x.png").write_bytes(b"x")
    listed = f"{texts}/red.txt\n\n{texts}/nothing.txt\n-\n".encode()
    sources = [str(texts / "red.txt"), "-", str(texts / "b*.txt"), str(texts)]
    jobs = plan_jobs(sources, lambda: listed, lambda *p: passed.append(p))
    names = [Path(job.path).name for job in jobs]
    assert names == ["red.txt", "nothing.txt", "-", "black.txt", "blue.txt", "green.txt", "white.txt"]
    assert [job.nbytes > 0 for job in jobs] == [name not in ("nothing.txt", "-") for name in names]
    assert [Path(path).name for path, _ in passed] == ["x.png"]
    zeros = plan_jobs(["-"], lambda: b"a\nb.txt\0c.txt\0", lambda *p: None)
    assert [job.source for job in zeros] == ["a\nb.txt", "c.txt"]
    with pytest.raises(UsageError, match="only once"):
        plan_jobs(["-", "-"], lambda: b"", lambda *p: None)


@pytest.mark.parametrize("where", ["summaries", "."])
def test_what_a_batch_wrote_is_no_document_of_it(run, texts, where):
    for first in (5, 0):
        done = run("summarize", texts, "-o", texts / where, "--jsonl", texts / "all.jsonl", "--json", "--length", "9")
        assert counts(done) == (first, 5 - first, 0)
    assert len(report_of(done)["passed_over"]) == 6


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1), unique=True))
def test_names_of_results_are_safe_and_differ(names):
    files = {file_name(f"/folder/{name}") for name in names if name not in (".", "..")}
    assert len(files) == len([n for n in names if n not in (".", "..")])
    for file in files:
        assert len(os.fsencode(file)) < 200
        assert Path(file).name == file
        assert not file.startswith((".", "-"))
        assert file.isprintable()


# Pages and templates


ENTRY = {
    "document": "a" * 64,
    "name": "<b>&$summary\n# {name.__class__}.txt",
    "path": "/x/[a](javascript:b).txt",
    "model": "tiny",
    "summary": "First <script>. Then ![p](http://x/y) $name.",
    "answers": [],
    "sections": [
        {"heading": "# One\n\nTwo", "pages": "3-5", "start": 0, "end": 9, "summary": "x [^9]: y"},
        {"heading": None, "pages": None, "start": 9, "end": 1200, "summary": "z"},
    ],
    "citations": [{**asdict(Citation("a" * 64, "n", "3", None, 0, 5, "a\n# b", "passage", 1.0)), "at": 15}],
}


def test_nothing_a_document_says_breaks_out_of_its_place(tmp_path):
    template = tmp_path / "page.md"
    template.write_text("$name|$$5|$summary|" + "|".join(f"${{{name}}}" for name in FIELDS))
    for page in (SummaryTemplate(), SummaryTemplate(template)):
        text = page.render(ENTRY)
        assert "<" not in text.replace("\\<", "")
        assert "](" not in text.replace("\\](", "").replace("\\]\\(", "")
        assert "\\&$summary \\# \\{name" in text, "a value was looked at for fields"
        assert "First \\<script\\>.[^1] Then" in text
        assert "[^1]: n, page 3:" in text
        assert not [line for line in text.splitlines()[1:] if line.startswith("# ")]
    assert "|$5|" in text
    assert fields(ENTRY)["sections"].splitlines()[1] == "- **characters 9 to 1,200**: z"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("$nothing", "unknown field"), ("costs 5$ or", "without a field name"), (b"\xff\xfe\xff", "cannot be read")],
)
def test_a_template_that_cannot_be_used_is_told_before_any_work(run, texts, tmp_path, text, problem):
    template = tmp_path / "page.md"
    template.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert_one_line(run("summarize", texts, "--template", template), 2, problem, "")


# The command


def test_a_folder_is_summarized_and_not_again(run, home, texts, tmp_path):
    out = tmp_path / "out"
    done = run("summarize", texts, "-o", out, "--length", "short")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "[5/5]" in done.stderr
    assert "5 done, 0 skipped, 0 failed, of 5" in done.stderr
    first = summaries(out)
    assert set(first) == {f"{colour}.txt" for colour in COLOURS}
    assert all(text.startswith(f"# {name}\n") for name, text in first.items())

    (edited,) = out.glob("red.txt-*")
    edited.write_text("mine")
    (lost,) = out.glob("blue.txt-*")
    lost.unlink()
    again = run("summarize", texts, "-o", out, "--length", "short", "--json")
    assert counts(again) == (0, 5, 0)
    assert summaries(out) == {**first, "red.txt": "mine"}, "what was edited is kept, and what was lost written again"
    entry = next(d for d in json.loads(again.stdout)["documents"] if d["name"] == "green.txt")
    assert {"document", "name", "path", "summary", "sections", "citations", "tokens", "seconds", "status"} <= set(entry)
    assert set(entry["tokens"]) == {"prompt", "reused", "prefilled", "generated", "dropped"}


def test_what_changed_is_done_again_and_only_that(run, texts, tmp_path):
    how = ("-o", tmp_path / "out", "--json", "-q")
    assert counts(run("summarize", texts, *how, "--length", "short")) == (5, 0, 0)
    (texts / "red.txt").write_text("The red house burned down last year.")
    assert counts(run("summarize", texts, *how, "--length", "short")) == (1, 4, 0)
    assert counts(run("summarize", texts, *how, "--length", "20")) == (5, 0, 0)
    assert counts(run("summarize", texts, *how, "--length", "20", "--kv", "f32")) == (5, 0, 0)
    assert counts(run("summarize", texts, *how, "--length", "short", "--force")) == (5, 0, 0)
    (tmp_path / "page.md").write_text("Summary: $name")
    assert counts(run("summarize", texts, *how, "--length", "short", "--template", tmp_path / "page.md")) == (0, 5, 0)
    assert summaries(tmp_path / "out")["red.txt"] == "Summary: red.txt"


def test_a_removed_document_leaves_no_result_in_the_store(run, store, texts):
    assert run("summarize", texts / "red.txt", "--length", "short").returncode == 0
    (row,) = store.documents.all()
    store.remove_document(row.id)
    assert store.db.table("results").count == 0


def test_a_bad_file_is_told_and_the_rest_goes_on(run, texts, tmp_path):
    (texts / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    (texts / "empty.txt").write_text("")
    done = run("summarize", texts, texts / "gone.txt", "-o", tmp_path / "out", "--json", "-q", "--length", "short")
    assert done.returncode == 3
    assert counts(done) == (5, 0, 3)
    why = {Path(f["path"]).name: f["why"] for f in report_of(done)["failed"]}
    assert "is empty" in why["empty.txt"]
    assert "does not exist" in why["gone.txt"]
    assert len(done.stderr.splitlines()) == 3
    assert len(summaries(tmp_path / "out")) == 5


def test_lines_of_json_are_added_each_once_also_after_a_line_that_was_cut(run, texts, tmp_path):
    file = tmp_path / "all.jsonl"
    how = ("--jsonl", file, "--length", "short", "-q")
    assert run("summarize", texts, *how).returncode == 0
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(e["name"] for e in entries) == sorted(f"{c}.txt" for c in COLOURS)
    with file.open("a") as f:
        f.write(file.read_text()[:70])
    (texts / "pink.txt").write_text("Pink.")
    assert run("summarize", texts, *how).returncode == 0
    names = [json.loads(line)["name"] for line in file.read_text().splitlines()]
    assert sorted(names) == sorted(f"{c}.txt" for c in (*COLOURS, "pink"))
    shown = run("summarize", texts, "--jsonl", "-", "--length", "short", "-q")
    assert len([json.loads(line) for line in shown.stdout.splitlines()]) == 6


def test_a_file_of_something_else_is_not_added_to(tmp_path):
    for text in ("Dear diary", "Dear diary\n", "[1]\n", '{"a": 1}\n'):
        (tmp_path / "diary").write_text(text)
        with pytest.raises(UsageError, match="content other than results"):
            JsonLines(tmp_path / "diary")
        assert (tmp_path / "diary").read_text() == text


def test_the_same_questions_are_asked_of_every_document(run, texts, tmp_path):
    (texts / "long.md").write_text(long_text(5, 12))
    how = ("--question", "Which colour is the door?", "--question", "Where is the bridge?", "--max-tokens", 5, "-q")
    done = run("summarize", texts, "-o", tmp_path / "out", "--json", *how)
    assert counts(done) == (6, 0, 0), done.stderr
    for d in json.loads(done.stdout)["documents"]:
        assert [a["question"] for a in d["answers"]] == ["Which colour is the door?", "Where is the bridge?"]
        assert {a["mode"] for a in d["answers"]} == {"retrieve" if d["name"] == "long.md" else "full"}
        assert d["tokens"]["reused"] > 0 or d["name"] == "long.md", "the second question reads the document again"
        assert d["summary"] is None
    assert "## Where is the bridge?" in summaries(tmp_path / "out")["red.txt"]
    refused = run("summarize", texts, "--question", "Why?", "--length", "short")
    assert_one_line(refused, 2, "for summaries", "leave them out")


def test_one_name_in_two_folders_and_one_text_under_two_names(run, tmp_path):
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "notes.txt").write_text("Same." if folder == "c" else f"Notes of {folder}.")
    (tmp_path / "c" / "copy.txt").write_text("Same.")
    done = run("summarize", *(tmp_path / f for f in "abc"), "-o", tmp_path / "out", "--json", "--length", "short")
    assert counts(done) == (3, 1, 0)
    assert len(list((tmp_path / "out").glob("*.md"))) == 4


def test_hostile_names_are_words_and_nothing_more(run, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in (
        b"-o",
        b"$(touch x)",
        b"a\nb\x1b[31m.txt",
        b"<img src=x>.md",
        b"..txt..",
        "Ünï.txt".encode(),
        b"\xff.txt",
    ):
        (folder / os.fsdecode(name)).write_text("Words.")
    done = run("summarize", folder, "-o", tmp_path / "out", "--json", "--length", "short")
    assert done.returncode == 0
    assert "\\xff.txt" in [d["path"].rpartition("/")[2] for d in json.loads(done.stdout)["documents"]]
    assert "\x1b" not in done.stderr
    files = list((tmp_path / "out").iterdir())
    assert len(files) == 6
    assert all("<img" not in f.read_text().replace("\\<img", "") for f in files)


@pytest.mark.parametrize(
    ("arguments", "code", "problem", "remedy"),
    [
        (["{texts}", "--json", "--jsonl", "-"], 2, "both print to stdout", "one of them"),
        (["{texts}", "--length", "huge"], 2, "'huge' is not valid", "short, medium, long"),
        (["{texts}", "--n", 2, "--temperature", 1], 2, "one answer", "--n"),
        (["{texts}", "--max-tokens", 9], 2, "--max-tokens is for answers", "--length"),
        (["{texts}", "-o", "{texts}/red.txt"], 2, "cannot be used as a folder", "-o"),
        (["{texts}", "--jsonl", "{texts}"], 2, "cannot be written", "--jsonl"),
        (["{texts}/../none*"], 3, "does not exist", "check the name"),
    ],
)
def test_what_cannot_be_done_is_told(run, texts, arguments, code, problem, remedy):
    done = run("summarize", "-q", *(str(a).format(texts=texts) for a in arguments))
    assert_one_line(done, code, problem, remedy)


def test_a_keeper_that_drops_is_told(run, document):
    done = run("summarize", document, "--length", "short", "--keep", "sink-window:128", "--json")
    (entry,) = json.loads(done.stdout)["documents"]
    assert entry["tokens"]["dropped"] > 400
    assert "not all of the text was seen" in done.stderr


class Watched(io.StringIO):
    """A terminal that somebody watches."""

    def isatty(self) -> bool:
        return True


def test_a_bar_with_the_time_left_is_for_who_watches(monkeypatch):
    from localctx.cli.progress import BatchProgress
    from localctx.cli.terminal import Terminal

    jobs = [DocumentJob(name, f"/{name}", nbytes) for name, nbytes in (("a", 3000), ("b", 1000), ("c", 0))]
    monkeypatch.setattr(sys, "stderr", Watched())
    with closing(BatchProgress(Terminal(), jobs)) as board:
        board.show(jobs[0], Progress("sections", 2, 7))
        board.show(jobs[2], Progress("reading", 1, 2))
        for job, line, status in zip(
            jobs, ("[1/3] a", "[2/3] b", "c is empty"), ("done", "skipped", "failed"), strict=True
        ):
            board.ended(line, Outcome(job, status))
    shown = sys.stderr.getvalue()
    assert "2 at a time" in shown
    assert "sections 2/7" in shown
    assert "left" in shown
    assert "3/3" in shown
    assert "localctx: c is empty" in shown
    assert "[1/3]" not in shown


# Killed, stopped, full


METHODS = ("run_batch.Batch._store", "outputs.MarkdownFolder.write", "outputs.JsonLines.write")


def test_killed_at_any_moment_it_goes_on_where_it_was(run, home, tmp_path):
    """Documents end in another order in each run: what was stored counts, not which document it was."""
    folder, out, file = tmp_path / "many", tmp_path / "out", tmp_path / "all.jsonl"
    folder.mkdir()
    many, stored, written = 14, 0, 0
    for i in range(many):
        (folder / f"{i}.txt").write_text(f"River {i} is {i * 37} km long. " * 10)
    how = (folder, "-o", out, "--jsonl", file, "--length", "short", "-q")
    arguments, environment = ["summarize", *how], {**os.environ, "LOCALCTX_HOME": str(home)}
    for method, after in itertools.product(METHODS, (False, True)):
        process, connection = start(killed_command, environment, arguments, method, 2, after)
        said(connection)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        with closing(Store(home)) as store:
            before, stored, written = stored, store.db.table("results").count, len(list(out.glob("*.md")))
        assert written <= stored <= written + 1, "no document is computed again"
        assert before < stored < many
    with file.open("a") as f:
        f.write('{"document": "cut sh')
    assert counts(run("summarize", *how[:-1], "--json")) == (many - stored, stored, 0)
    assert set(summaries(out)) == {f"{i}.txt" for i in range(many)}
    names = [json.loads(line)["name"] for line in file.read_text().splitlines()]
    assert sorted(names) == sorted(f"{i}.txt" for i in range(many))


def test_ctrl_c_stops_within_a_second_and_the_rest_is_done_later(localctx, run, texts, tmp_path, home):
    (texts / "zlong.md").write_text(long_text(40, 12))
    arguments = [texts, "-o", tmp_path / "out", "--length", "short"]
    line = [sys.executable, "-m", "localctx", "summarize", *map(str, arguments)]
    with opened(line, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for said_line in process.stderr:
            if "[5/6]" in said_line:
                break
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        rest = process.communicate()[1]
    assert seconds_since(start) < 1
    assert process.returncode == 130
    assert "5 done, 0 skipped, 0 failed, of 6" in rest
    assert rest.endswith("localctx: stopped; run it again to continue\n")
    (texts / "zlong.md").unlink()
    assert counts(run("summarize", *arguments, "--json")) == (0, 5, 0)


def test_a_full_disk_is_told_and_nothing_else_is_lost(run, home, texts, tmp_path, monkeypatch):
    from localctx.batch import outputs

    whole = outputs.write_atomically

    def full(file: Path, text: str) -> None:
        if "green" in file.name:
            raise OSError(28, "No space left on device")
        whole(file, text)

    how = (texts, "-o", tmp_path / "out", "--json", "--length", "short")
    monkeypatch.setattr(outputs, "write_atomically", full)
    done = run("summarize", *how)
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert counts(done) == (4, 0, 1)
    monkeypatch.setattr(outputs, "write_atomically", whole)
    again = run("summarize", *how)
    assert counts(again) == (0, 5, 0), "what was computed is computed again"
    assert len(summaries(tmp_path / "out")) == 5


def test_where_the_disk_of_the_lines_is_full_no_line_is_cut(home, run, texts, tmp_path):
    file = tmp_path / "all.jsonl"
    arguments = ["summarize", texts, "--jsonl", file, "--length", "short", "-q"]
    file.write_text(
        "".join(json.dumps({"document": str(i), "path": "x" * 900, "recipe": ""}) + "\n" for i in range(900))
    )
    before = file.read_text()
    run("summarize", texts / "red.txt", "--length", "short")  # the store is there, and small
    done = elsewhere(home, *arguments, limit=file.stat().st_size + 100)
    assert done.returncode == 3, done.stderr
    assert "cannot be written" in done.stderr
    assert file.read_text() == before
    assert run(*arguments).returncode == 0
    assert len(file.read_text()[len(before) :].splitlines()) == 5
