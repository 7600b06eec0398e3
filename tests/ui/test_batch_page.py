"""The batch of the window: in the server without a page, then the page in a browser."""

import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from browser import Tab, Watch, launched
from clock import seconds_since, wait_until
from payloads import payloads
from window_checks import barriers, normal

from localctx.batch.jobs import plan_jobs
from localctx.batch.outputs import file_name
from localctx.engine.events import Progress
from localctx.errors import UsageError
from localctx.store.documents import text_id
from localctx.ui.batch import batch_table
from localctx.ui.running.batch_runs import BatchItem, BatchRuns
from localctx.workflows.summary_task import SummaryTask

pytestmark = pytest.mark.slow

COLOURS = ("red", "green", "blue", "black", "white")
BRIEF = SummaryTask(length="9")
HOSTILE = "<img src=x onerror=alert(1)>${alert(2)}"


@pytest.fixture
def texts(tmp_path) -> Path:
    """A folder of five short texts, and a picture by another name."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for colour in COLOURS:
        (folder / f"{colour}.txt").write_text(f"The {colour} house stands on a hill. Its door is {colour}.\n")
    (folder / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n")
    return folder


def items_of(folder: Path) -> list[BatchItem]:
    return [BatchItem(job, Path(job.path).name) for job in plan_jobs([str(folder)], bytes, lambda *told: None)]


def wait(batches: BatchRuns, until=lambda batches: not batches.running) -> dict[str, str]:
    """Wait for something; the states of all documents then."""
    end = time.monotonic() + 60
    while not until(batches):
        assert time.monotonic() < end, [(item.name, item.state, item.detail) for item in batches.items]
        time.sleep(0.01)
    return {item.name: item.state for item in batches.items}


def done_of(batches: BatchRuns) -> int:
    return sum(item.state == "done" for item in batches.items)


# Without a page


def test_a_batch_is_done_and_what_was_done_is_skipped(window, texts):
    batches = window.batches
    batches.begin(items_of(texts), BRIEF)
    with pytest.raises(UsageError, match="is running"):
        batches.begin([], BRIEF)
    states = wait(batches)
    assert states == {**{f"{c}.txt": "done" for c in COLOURS}, "picture.txt": "failed"}
    bad = next(item for item in batches.items if item.state == "failed")
    assert bad.detail.startswith("picture.txt is a picture; turn")
    summaries = {item.name: item.entry["summary"] for item in batches.items if item.entry}
    (texts / "picture.txt").write_text("It was a text after all.")
    batches.retry()
    assert wait(batches)["picture.txt"] == "done"
    batches.begin(items_of(texts), BRIEF)
    assert set(wait(batches).values()) == {"skipped"}
    assert summaries.items() <= {item.name: item.entry["summary"] for item in batches.items}.items()
    batches.begin(items_of(texts), SummaryTask(questions=("Which colour?", "And where?")))
    assert set(wait(batches).values()) == {"done"}
    assert [a["question"] for a in batches.items[0].entry["answers"]] == ["Which colour?", "And where?"]


def test_the_command_finds_what_the_window_did(window, texts, run, monkeypatch, tiny_model):
    window.batches.begin(items_of(texts), BRIEF)
    wait(window.batches)
    for name, value in {"MODEL": tiny_model, "MAX_TOKENS": 4, "THREADS": 1}.items():
        monkeypatch.setenv(f"LOCALCTX_{name}", str(value))
    done = run("summarize", texts, "-o", texts / "out", "--length", "9")
    assert "0 done, 5 skipped, 1 failed, of 6" in done.stderr


def test_paused_in_the_middle_it_goes_on_where_it_was(window, texts):
    batches = window.batches
    batches.begin(items_of(texts), SummaryTask(length="60"))
    wait(batches, lambda b: any(item.written for item in b.items))
    start = time.monotonic()
    batches.pause()
    states = wait(batches, lambda b: not any(item.state in ("reading", "queued", "running") for item in b.items))
    assert seconds_since(start) < 3
    assert "ready" in states.values()
    assert "paused" in batch_table.progress(batches)
    before = done_of(batches)
    with window.store() as store:
        assert len(store.documents.all()) <= 5
    batches.resume()
    assert list(wait(batches).values()).count("done") == 5
    assert done_of(batches) >= before


def test_a_question_goes_before_many_documents(window, tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(40):
        (folder / f"{i}.txt").write_text(f"House {i} stands on a hill.")
    batches = window.batches
    batches.begin(items_of(folder), SummaryTask(length="50"))
    wait(batches, lambda b: done_of(b) > 1)

    def ask(session):
        yield from session.workflows.questions.ask([str(folder / "7.txt")], "Where?", persist=False)

    turn, before = window.answer_worker.submit(ask), done_of(batches)
    assert window.answer_worker.queue_position(turn) <= 1
    assert any(isinstance(event, Progress) for event in turn)
    assert done_of(batches) - before < 20
    batches.pause()


def test_what_is_wrong_with_all_stops_all_and_is_told(window, texts):
    window.answer_worker.change_settings(replace(window.settings, model="/nowhere/at/all"))
    window.batches.begin(items_of(texts), BRIEF)
    states = wait(window.batches)
    assert set(states.values()) <= {"waiting", "reading", "ready", "queued", "running", "failed"}
    assert "/nowhere/at/all" in batch_table.progress(window.batches)
    window.answer_worker.change_settings(window.settings)
    window.batches.resume()
    assert list(wait(window.batches).values()).count("done") == 5


def test_a_name_that_is_not_utf8_is_read_like_others(window, texts):
    (texts / "n\udcffame.txt").write_text("The ship left at noon. " * 20)
    window.batches.begin(items_of(texts), BRIEF)
    wait(window.batches)
    assert {item.name: item.state for item in window.batches.items}["n\\xffame.txt"] == "done"


def test_a_batch_is_forgotten_in_the_middle_with_all_that_was_made(window, texts):
    batches = window.batches
    batches.begin(items_of(texts), BRIEF)
    before = batches.items
    wait(batches, lambda b: done_of(b) > 0)
    batches.forget()
    assert (batches.items, batches.running) == ([], False)
    with window.answer_worker.drained():
        wait_until(lambda: not any(item.state == "running" for item in before))  # their threads hear of it last


def made(text: str) -> BatchItem:
    """A document named ``text`` that says it, with a result that says it everywhere."""
    from localctx.batch.run_batch import Outcome

    cited = {"document": text_id(text), "name": text, "page": text, "heading": text, "start": 0, "end": len(text)}
    cited |= {"quote": text, "source": "passage", "weight": 0.5, "at": len(text)}
    section = {"start": 0, "end": 1, "heading": text, "pages": text, "summary": text}
    tokens = {"prompt": 9, "reused": 0, "generated": 3}
    entry = {"summary": text, "answers": [], "sections": [section] * 2, "citations": [cited], "tokens": tokens}
    item = BatchItem(plan_jobs([f"/{text}"], bytes, lambda *told: None)[0], text, "", "done", text)
    named = {"document": text_id(text), "name": text, "path": f"/{text}", "model": text}
    item.outcome = Outcome(item.job, "done", entry={**entry, **named}, seconds=1.0)
    return item


def test_whatever_documents_and_models_say_is_text():
    for shown in (
        batch_table.table([made(HOSTILE)], ""),
        batch_table.result(made(HOSTILE), lambda d: HOSTILE),
        batch_table.result(BatchItem(made(HOSTILE).job, HOSTILE, detail=HOSTILE), lambda d: None),
        batch_table.table([], HOSTILE),
    ):
        assert "<img" not in shown
        assert "${" not in shown


def test_of_many_documents_those_near_the_work_are_in_the_table():
    job = made("x").job
    items = [BatchItem(job, f"n{i}", state="done" if i < 700 else "waiting") for i in range(1000)]
    drawn = batch_table.table(items, "")
    assert drawn.count("<tr") == batch_table.MAX_ROWS + 1
    assert ">n699<" in drawn
    assert ">n700<" in drawn
    assert "700 more" in drawn
    assert batch_table.table(items, "N999").count("<tr") == 2
    assert "No name or state" in batch_table.table(items, "nobody")


# In a browser


@pytest.fixture(scope="module")
def chromium():
    with launched() as browser:
        yield browser


@pytest.fixture
def tab(chromium, address):
    """A page that fails the test with a dialog, a script's error or a stray request."""
    watch, context = Watch(address.rstrip("/")), chromium.new_context()
    tab = Tab(watch.over(context.new_page())).open(address)
    tab.watch = watch
    yield tab
    context.close()
    assert watch.seen == []


def show(tab: Tab, until: str) -> str:
    """The batch tab, when it tells something of how far it is."""
    tab.page.get_by_role("tab", name="Summaries").click()
    return tab.wait_for(until, "#batch-progress")


def reload(tab: Tab) -> None:
    """Load the page anew, which may tell on the console of the connection that it cut off."""
    tab.page.reload()
    tab.watch.seen = [seen for seen in tab.watch.seen if not seen.startswith("console: ")]


def set_length(tab: Tab, length: str) -> None:
    field = tab.page.locator("#batch-length input")
    if not field.is_visible():
        tab.page.locator("#batch-how button").first.click()
    field.fill(length)
    field.press("Enter")


def begin(tab: Tab, folder: Path) -> None:
    tab.page.locator("#batch-paths textarea").fill(str(folder))
    tab.page.locator("#batch-begin").click()


def packed(tab: Tab, tmp_path: Path) -> dict[str, str]:
    """What "Download all" gives."""
    with tab.page.expect_download() as saved:
        tab.page.locator("#batch-save").click()
    saved.value.save_as(tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as all_of_it:
        assert len(all_of_it.namelist()) == len(set(all_of_it.namelist()))
        return {name: all_of_it.read(name).decode() for name in all_of_it.namelist()}


@pytest.mark.browser
def test_a_folder_is_done_through_pauses_reloads_and_bad_files(tab, window, texts, tmp_path):
    (texts / f"{HOSTILE}.txt").write_text(f"{HOSTILE} stands on a hill.\n")
    show(tab, "Choose documents")
    begin(tab, tmp_path / "nothing*")
    tab.wait_for("1 of 1 documents, 1 failed", "#batch-progress")
    set_length(tab, "9")
    with window.answer_worker.drained():  # so that it is in the middle for as long as this takes
        begin(tab, texts)
        tab.wait_for("queued", "#batch-table")
        reload(tab)
        show(tab, "of 7 documents")
        tab.page.locator("#batch-pause").click()
        tab.wait_for("paused", "#batch-progress")
    assert tab.page.locator("#batch-table tbody tr").count() == 7
    tab.page.locator("#batch-resume").click()
    tab.wait_for("7 of 7 documents, 6 done, 1 failed", "#batch-progress")
    assert "picture.txt is a picture; turn" in tab.page.locator("#batch-table").inner_text()
    (texts / "picture.txt").write_text("A house again.")
    tab.page.locator("#batch-retry").click()
    tab.wait_for("7 of 7 documents, 7 done", "#batch-progress")

    tab.page.locator("#batch-filter input, #batch-filter textarea").fill("onerror")
    tab.page.wait_for_function("document.querySelectorAll('#batch-table tbody tr').length == 1")
    tab.page.locator(".lc-open").focus()
    tab.page.keyboard.press("Enter")
    assert HOSTILE in tab.wait_for("words read", "#batch-result")
    tab.page.evaluate("document.querySelectorAll('#batch-result details').forEach(d => d.open = true)")
    assert barriers(tab.page) == {}
    files = packed(tab, tmp_path)
    assert files.keys() == {file_name(str(path)) for path in texts.iterdir()}
    assert sum("red.txt" in text.splitlines()[0] for text in files.values()) == 1

    set_length(tab, "9")
    begin(tab, texts)
    tab.wait_for("7 of 7 documents, 7 skipped", "#batch-progress")
    assert packed(tab, tmp_path) == files


def choose_from_library(tab, name: str) -> None:
    """A list that is open when its choices arrive stays as it was, so it is closed and opened until it has them."""
    option = tab.page.get_by_role("option", name=name)
    for _ in range(30):
        tab.page.locator("#batch-library input").click()
        tab.page.wait_for_timeout(500)
        if option.count():
            return option.click()
        tab.page.locator("#batch-library input").blur()
    raise AssertionError(f"{name} is not among the library's documents")


@pytest.mark.browser
def test_what_is_dropped_and_what_the_library_has_are_asked(tab, texts, tmp_path):
    show(tab, "documents")
    tab.page.set_input_files("#batch-drop input[type=file]", [texts / "red.txt", texts / "blue.txt"])
    tab.wait_for("⇣", "#batch-drop")
    tab.page.locator("#batch-questions textarea").fill("Which colour?\n\nWhere?")
    tab.page.locator("#batch-begin").click()
    tab.wait_for("2 of 2 documents, 2 done", "#batch-progress")
    tab.page.locator(".lc-open", has_text="red.txt").click()
    result = tab.wait_for("Where?", "#batch-result")
    assert result.index("red.txt") < result.index("Which colour?") < result.index("Where?")
    assert not any(str(tmp_path) in text for text in packed(tab, tmp_path).values())

    reload(tab)
    show(tab, "2 of 2")
    choose_from_library(tab, "blue.txt")
    set_length(tab, "a few lines")
    tab.page.locator("#batch-begin").click()
    assert "not valid" in tab.wait_for("a few lines", "#batch-said")
    set_length(tab, "12")
    tab.page.locator("#batch-begin").click()
    tab.wait_for("1 of 1 documents, 1 done", "#batch-progress")


@pytest.mark.browser
def test_hostile_texts_are_shown_and_do_nothing(tab, window):
    texts = payloads("http://127.0.0.1:9")[::5]
    window.batches.items = [made(text) for text in texts]
    show(tab, f"{len(texts)} of {len(texts)}")
    for i in (0, len(texts) // 2, len(texts) - 1):
        tab.page.locator(".lc-open").nth(i).click()
        tab.page.wait_for_timeout(300)
        tab.page.evaluate("document.querySelectorAll('#batch-result details').forEach(d => d.open = true)")
    shown = normal(tab.page.locator("#batch-table").inner_text())
    assert [text for text in texts if normal(text) not in shown] == []
    assert normal(texts[-1]) in normal(tab.page.locator(".lc-result").inner_text())
