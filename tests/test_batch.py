"""``summarize``: what is planned, how documents are summarized, what is written, and what a second run finds done."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from asking import PLAIN, command, said, session, start
from clock import seconds_since
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli import assert_one_line, elsewhere

from localctx import summarizing
from localctx.batch.jobs import Job, plan_jobs
from localctx.batch.outputs import Lines, file_name
from localctx.batch.page import FIELDS, Page, fields
from localctx.batch.run import Outcome
from localctx.engine.events import Progress
from localctx.engine.steps import hear_out
from localctx.errors import UsageError
from localctx.library.read import read_document
from localctx.library.sections import Section, sections
from localctx.library.sentences import finished
from localctx.settings import load_settings
from localctx.store.documents import Span
from localctx.store.store import Store
from localctx.summarizing import _Told, cited
from localctx.task import LENGTHS, Task

COLOURS = ("red", "green", "blue", "black", "white")
SMALL = {**PLAIN, "chunk": 512}


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


def write_texts(folder: Path) -> Path:
    folder.mkdir()
    for colour in COLOURS:
        (folder / f"{colour}.txt").write_text(f"The {colour} house stands on a hill. Its door is {colour}.\n")
    return folder


def long_text(headings: int = 5, paragraphs: int = 12) -> str:
    """About 1,150 characters, and tokens of the tiny model, under each heading."""
    line = "Paragraph {p} of part {h} says that the bridge number {h}{p} was built of stone and wood in a week."
    parts = [
        f"# Part {h}\n\n" + "".join(line.format(h=h, p=p) + "\n\n" for p in range(paragraphs)) for h in range(headings)
    ]
    return "".join(parts)


def report_of(done: subprocess.CompletedProcess) -> dict:
    return json.loads(done.stdout)["report"]


def counts(done: subprocess.CompletedProcess) -> tuple[int, int, int]:
    """How many are done, skipped and failed."""
    report = report_of(done)
    return report["done"], report["skipped"], len(report["failed"])


def summaries(out: Path) -> dict[str, str]:
    """The summaries of a folder by the name of their document. Each is there once."""
    by_name = {path.name.rpartition("-")[0]: path.read_text() for path in out.glob("*.md")}
    assert len(by_name) == len(list(out.glob("*.md")))
    return by_name


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


# Sections


def words(text: str) -> int:
    return len(text.split())


@settings(max_examples=30, deadline=None)
@given(st.integers(70, 400), st.integers(0, 6), st.integers(1, 9))
def test_sections_hold_all_that_is_visible_in_order_and_fit(most, headings, paragraphs):
    text = long_text(headings, paragraphs) or "Nothing but this."
    spans = spans_of(text)
    found = sections(text, spans, words, most)
    assert [a.end <= b.start for a, b in pairwise(found)] == [True] * (len(found) - 1)
    left_out = text[: found[0].start] + "".join(text[a.end : b.start] for a, b in pairwise(found))
    assert not (left_out + text[found[-1].end :]).strip()
    assert all(words(text[s.start : s.end]) <= most for s in found)
    if headings > 1 and all(words(text[s.start : s.end]) * 4 >= most for s in spans):
        cuts = {s.start for s in found}
        assert all(s.start in cuts for s in spans), "a section goes on past a heading"


def spans_of(text: str) -> list[Span]:
    starts = [*(i for i in range(len(text)) if text.startswith("# Part", i)), len(text)]
    return [Span(a, b, "heading", text[a + 2 : a + 8]) for a, b in pairwise(starts)]


def test_a_section_knows_its_heading_and_pages():
    text = long_text(3, 4)
    at = [s.start for s in spans_of(text)]
    spans = [Span(0, at[1] + 10, "page", "iv"), Span(at[1] + 10, len(text), "page", "5"), *spans_of(text)]
    one, two, three = sections(text, sorted(spans, key=lambda s: s.start), words, 100)
    assert [(s.heading, s.pages) for s in (one, two, three)] == [("Part 0", "iv"), ("Part 1", "iv-5"), ("Part 2", "5")]
    (joined,) = sections(text, spans_of(text), words, 10_000)
    assert (joined.heading, joined.pages) == ("Part 0 … Part 2", None)


# One document


def result(path: Path, *, home: Path, model: Path, task: Task, keep: bool = False, heard: list | None = None, **more):
    """What a task makes of a file; its events are ``heard``."""
    with session(home, model, **{**SMALL, **more, "max_tokens": task.tokens}) as s, s.summarizing() as at_work:
        events = s.run(at_work.of(at_work.read_file(str(path)), task, keep))
        while True:
            try:
                event = next(events)
                if heard is not None:
                    heard.append(event)
            except StopIteration as end:
                return end.value


def test_a_document_that_fits_is_read_whole_and_what_is_kept_of_it_is_used(home, document, tiny_model):
    how = {"home": home, "model": tiny_model, "task": Task("short")}
    first = result(document, **how)
    assert (first["mode"], first["tokens"]["reused"]) == ("whole", 0)
    assert first["tokens"]["prefilled"] == first["tokens"]["prompt"] > 700
    with closing(Store(home)) as store:
        assert not store.pages.live(), "pages that nobody asked to keep are kept"
    kept = result(document, keep=True, **how)
    again = result(document, **how)
    assert kept["summary"] == again["summary"] == first["summary"]
    assert again["tokens"]["reused"] > 640
    with session(home, tiny_model, **SMALL) as s:
        *_, done = s.ask([str(document)], "How long is river 7?")
    assert done.report["tokens"]["reused"] >= 640, "the document's pages are shared with questions"


def test_a_long_document_is_summarized_by_its_sections(home, tmp_path, tiny_model):
    long = tmp_path / "long.md"
    long.write_text(long_text(6, 12))
    found = result(long, home=home, model=tiny_model, task=Task(length="20"))
    assert found["mode"] == "sections"
    assert [s["heading"] for s in found["sections"]] == [f"Part {h}" for h in range(6)]
    text = read_document(str(long)).text
    assert all(text[s["start"] : s["end"]].startswith("# Part") for s in found["sections"])
    assert all(s["summary"] for s in found["sections"])
    assert found["tokens"]["prompt"] > len(text)
    assert found["tokens"]["generated"] > 6
    with closing(Store(home)) as store:
        assert not store.pages.live(), "the sections' pages fill the disk"


def test_many_summaries_are_summarized_on_several_levels(home, tmp_path, tiny_model, monkeypatch):
    monkeypatch.setattr(summarizing, "MOST", 256)
    long, heard = tmp_path / "long.md", []
    long.write_text(long_text(9, 5))
    found = result(long, home=home, model=tiny_model, task=Task("short"), heard=heard)
    levels = [e.total for e in heard if isinstance(e, Progress) and (e.phase, e.done) == ("summaries", 0)]
    assert len(levels) > 1
    assert levels == sorted(levels, reverse=True)
    assert levels[-1] == 1
    assert len(found["sections"]) > 9, "a heading's text that does not fit is divided"
    asked = len(found["sections"]) + sum(e.phase == "summaries" for e in heard if isinstance(e, Progress))
    assert found["tokens"]["prompt"] < asked * 800, "more was read at once than fits"


def test_where_memory_is_small_sections_are(home, document, tiny_model):
    found = result(document, home=home, model=tiny_model, task=Task("short"), memory="128KiB", ram="0", disk="0")
    assert found["mode"] == "sections"
    assert len(found["sections"]) > 1


def test_refining_carries_the_summary_along(home, tmp_path, tiny_model):
    long = tmp_path / "long.md"
    long.write_text(long_text(5, 12))
    found = result(long, home=home, model=tiny_model, task=Task("short", refine=True))
    assert found["mode"] == "refine"
    assert len(found["sections"]) == 5
    assert found["summary"] == found["sections"][-1]["summary"]


def test_every_sentence_of_a_summary_leads_to_the_words_and_the_page_it_stands_on(tmp_path):
    text = "The bridge was built in 1802.\n\nThe mill burned down in a storm.\n\nNobody knows who laid the road.\n"
    path = tmp_path / "town.txt"
    path.write_text(text)
    document, mill = read_document(str(path)), text.index("The mill")
    spans = [Span(0, mill, "page", "1"), Span(mill, len(text), "page", "2")]
    told = [
        _Told(Section(0, mill, None, "1"), "A bridge was built in 1802."),
        _Told(Section(mill, len(text), None, "2"), "The mill burned in a storm. The road is old."),
    ]
    summary = "The mill burned down in a storm. The bridge was built in 1802. Zebras sing."
    found = cited((document.row, document.text, spans), summary, told)
    assert [(c["page"], c["quote"]) for c in found] == [
        ("2", "The mill burned down in a storm."),
        ("1", "The bridge was built in 1802."),
    ]
    assert [summary[: c["at"]][-5:] for c in found] == ["torm.", "1802."]
    assert cited((document.row, document.text, spans), "", told) == []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("One is here. Two is he", "One is here."),
        ("One is here. Two too.", "One is here. Two too."),
        ("One with no end", "One with no end"),
        ("", ""),
    ],
)
def test_a_summary_that_was_cut_ends_with_a_whole_sentence(text, kept):
    assert finished(text) == kept


def test_a_recipe_is_of_all_that_matters_and_nothing_else(home):
    s, plain = load_settings(), Task()
    assert plain.recipe(s) == Task("medium").recipe(s)
    others = [Task(length=name) for name in LENGTHS if name != "medium"] + [Task(length="50"), Task(style="bullets")]
    others += [Task(language="German"), Task(refine=True), Task(questions=("Why?",)), Task(questions=("Who?",))]
    assert len({t.recipe(s) for t in [plain, *others]}) == 1 + len(others)
    assert plain.recipe(load_settings(kv="int4")) != plain.recipe(s) == plain.recipe(load_settings(threads=2))
    for wrong in ({"length": "huge"}, {"length": "0"}, {"style": "rude"}, {"questions": (" ",)}):
        with pytest.raises(UsageError):
            Task(**wrong)


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
    "citations": [{"name": "n", "page": "3", "heading": None, "quote": "a\n# b", "at": 15}],
}


def test_nothing_a_document_says_breaks_out_of_its_place(tmp_path):
    template = tmp_path / "page.md"
    template.write_text("$name|$$5|$summary|" + "|".join(f"${{{name}}}" for name in FIELDS))
    for page in (Page(), Page(template)):
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
    [("$nothing", "unknown field"), ("costs 5$ or", "begins no field"), (b"\xff\xfe\xff", "cannot be read")],
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
        with pytest.raises(UsageError, match="something else"):
            Lines(tmp_path / "diary")
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
    assert done.returncode == 3
    assert [f["path"].rpartition("/")[2] for f in report_of(done)["failed"]] == ["\\udcff.txt"]
    assert "\x1b" not in done.stderr
    files = list((tmp_path / "out").iterdir())
    assert len(files) == 5
    assert all("<img" not in f.read_text().replace("\\<img", "") for f in files)


@pytest.mark.parametrize(
    ("arguments", "code", "problem", "remedy"),
    [
        (["{texts}", "--json", "--jsonl", "-"], 2, "both be on stdout", "one of them"),
        (["{texts}", "--length", "huge"], 2, "'huge' cannot be meant", "short, medium, long"),
        (["{texts}", "--n", 2, "--temperature", 1], 2, "one answer", "--n"),
        (["{texts}", "--max-tokens", 9], 2, "--max-tokens is for answers", "--length"),
        (["{texts}", "-o", "{texts}/red.txt"], 2, "cannot be a folder", "-o"),
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
    assert "not all was seen" in done.stderr


class Watched(io.StringIO):
    """A terminal that somebody watches."""

    def isatty(self) -> bool:
        return True


def test_a_bar_with_the_time_left_is_for_who_watches(monkeypatch):
    from localctx.cli.board import Board
    from localctx.cli.terminal import Terminal

    jobs = [Job(name, f"/{name}", nbytes) for name, nbytes in (("a", 3000), ("b", 1000), ("c", 0))]
    monkeypatch.setattr(sys, "stderr", Watched())
    with closing(Board(Terminal(), jobs)) as board:
        board.show(jobs[0], Progress("sections", 2, 7))
        board.show(jobs[2], Progress("reading", 1, 2))
        for job, line, status in zip(
            jobs, ("[1/3] a", "[2/3] b", "c is empty"), ("done", "skipped", "failed"), strict=True
        ):
            board.ended(line, Outcome(job, status))
    shown = sys.stderr.getvalue()
    assert "2 at once" in shown
    assert "sections 2/7" in shown
    assert "left" in shown
    assert "3/3" in shown
    assert "localctx: c is empty" in shown
    assert "[1/3]" not in shown


# Killed, stopped, full


def test_what_was_said_of_sections_is_not_said_again(home, tiny_model, tmp_path):
    file = tmp_path / "long.md"
    file.write_text(long_text(5, 12))
    task, results = Task(length="20"), []
    for folder in (home, tmp_path / "other"):
        with session(folder, tiny_model, **{**SMALL, "max_tokens": 20}) as s, s.summarizing() as summarizing:
            held = summarizing.read_file(str(file))
            if folder == home:
                with closing(s.run(summarizing.of(held, task))) as cut:
                    next(e for e in cut if isinstance(e, Progress) and (e.phase, e.done) == ("sections", 3))
                kept = [row["recipe"] for row in s.store.db["results"].rows]
                assert len(kept) == 3
            results.append(hear_out(s.run(summarizing.of(held, task)), lambda event: None))
    again, fresh = results
    assert again["summary"] == fresh["summary"]
    assert again["sections"] == fresh["sections"]
    assert again["tokens"]["prompt"] < fresh["tokens"]["prompt"] * 0.6


def started(home: Path, *arguments: object):
    return start(command, {**os.environ, "LOCALCTX_HOME": str(home)}, ["summarize", *arguments], None)


def test_killed_at_any_moment_it_goes_on_where_it_was(run, home, tmp_path):
    folder, out, file = tmp_path / "many", tmp_path / "out", tmp_path / "all.jsonl"
    folder.mkdir()
    for i in range(20):
        (folder / f"{i}.txt").write_text(f"River {i} is {i * 37} km long. " * 10)
    how = (folder, "-o", out, "--jsonl", file, "--length", "short", "-q")
    killed = 0
    for seed in range(5):
        process, connection = started(home, *how)
        before = len(list(out.glob("*.md")))
        while process.is_alive() and len(list(out.glob("*.md"))) <= before:
            time.sleep(0.005)
        time.sleep(random.Random(seed).uniform(0, 0.15))
        process.kill()
        said(connection)
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        with closing(Store(home)) as store:
            done, written = store.db.table("results").count, len(list(out.glob("*.md")))
        assert done <= written <= done + 1, "more than the document in work was lost"
    assert killed >= 2
    last = run("summarize", *how[:-1], "--json")
    assert sum(counts(last)) == 20
    assert last.returncode == 0
    assert set(summaries(out)) == {f"{i}.txt" for i in range(20)}
    names = [json.loads(line)["name"] for line in file.read_text().splitlines()]
    assert sorted(names) == sorted(f"{i}.txt" for i in range(20))


def test_ctrl_c_stops_within_a_second_and_the_rest_is_done_later(localctx, run, texts, tmp_path, home):
    (texts / "zlong.md").write_text(long_text(40, 12))
    arguments = [texts, "-o", tmp_path / "out", "--length", "short"]
    line = [sys.executable, "-m", "localctx", "summarize", *map(str, arguments)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
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
    assert rest.endswith("localctx: stopped; run it again to go on\n")
    (texts / "zlong.md").unlink()
    assert counts(run("summarize", *arguments, "--json")) == (0, 5, 0)


def test_a_full_disk_is_told_and_nothing_else_is_lost(run, home, texts, tmp_path, monkeypatch):
    from localctx.batch import outputs

    whole = outputs.write_whole

    def full(file: Path, text: str) -> None:
        if "green" in file.name:
            raise OSError(28, "No space left on device")
        whole(file, text)

    how = (texts, "-o", tmp_path / "out", "--json", "--length", "short")
    monkeypatch.setattr(outputs, "write_whole", full)
    done = run("summarize", *how)
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert counts(done) == (4, 0, 1)
    monkeypatch.setattr(outputs, "write_whole", whole)
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
