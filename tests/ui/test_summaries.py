"""Summaries of library documents: in the server without a page, then in the library in a browser."""

import time
import zipfile
from dataclasses import replace
from pathlib import Path

import openpyxl
import pytest
from browser import Tab, Watch
from clock import seconds_since, wait_until
from payloads import payloads
from window_checks import barriers, normal

from localctx.batch.jobs import DocumentJob
from localctx.engine.events import Progress
from localctx.errors import UsageError
from localctx.store.documents import text_id
from localctx.ui.library import summary_cards
from localctx.ui.running.batch_item import BatchItem
from localctx.ui.running.batch_runs import BatchRuns
from localctx.workflows.summary_task import SummaryTask

pytestmark = pytest.mark.slow

COLOURS = ("red", "green", "blue", "black", "white")
BRIEF = SummaryTask(length="9")
HOSTILE = "<img src=x onerror=alert(1)>${alert(2)}"


@pytest.fixture
def texts(tmp_path) -> Path:
    """A folder of five short texts."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for colour in COLOURS:
        (folder / f"{colour}.txt").write_text(f"The {colour} house stands on a hill. Its door is {colour}.\n")
    return folder


def items_of(window, folder: Path) -> list[BatchItem]:
    """The texts of a folder, which are read into the library."""

    def read(session):
        yield session.workflows.store([str(path) for path in sorted(folder.iterdir())])

    for ids in window.library_worker.submit(read):
        if isinstance(ids, list):
            with window.store() as store:
                rows = [store.documents.find(document) for document in ids]
    return [BatchItem(DocumentJob(row.id, row.path, row.bytes), row.name) for row in rows]


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
    batches, items = window.batches, items_of(window, texts)
    gone = BatchItem(DocumentJob("0" * 64, "/gone.txt", 9), "gone.txt")
    batches.begin([*items, gone], BRIEF)
    with pytest.raises(UsageError, match="being summarized"):
        batches.begin([], BRIEF)
    states = wait(batches)
    assert states == {**{f"{c}.txt": "done" for c in COLOURS}, "gone.txt": "failed"}
    assert gone.detail
    assert "0" * 64 not in gone.detail
    summaries = {item.name: item.entry["summary"] for item in batches.items if item.entry}
    batches.retry()
    assert wait(batches) == states
    batches.begin(items_of(window, texts), BRIEF)
    assert set(wait(batches).values()) == {"skipped"}
    assert summaries == {item.name: item.entry["summary"] for item in batches.items}
    batches.begin(items_of(window, texts), SummaryTask(questions=("Which colour?", "And where?")))
    assert set(wait(batches).values()) == {"done"}
    assert [a["question"] for a in batches.items[0].entry["answers"]] == ["Which colour?", "And where?"]


def test_the_command_finds_what_the_window_did(window, texts, run, monkeypatch, tiny_model):
    window.batches.begin(items_of(window, texts), BRIEF)
    wait(window.batches)
    for name, value in {"MODEL": tiny_model, "MAX_TOKENS": 4, "THREADS": 1}.items():
        monkeypatch.setenv(f"LOCALCTX_{name}", str(value))
    done = run("summarize", texts, "-o", texts / "out", "--length", "9")
    assert "0 done, 5 skipped, 0 failed, of 5" in done.stderr


def test_paused_in_the_middle_it_goes_on_where_it_was(window, texts):
    batches = window.batches
    batches.begin(items_of(window, texts), SummaryTask(length="60"))
    wait(batches, lambda b: any(item.written for item in b.items))
    start = time.monotonic()
    batches.pause()
    states = wait(batches, lambda b: not any(item.state in ("queued", "running") for item in b.items))
    assert seconds_since(start) < 3
    assert "waiting" in states.values()
    assert "paused" in summary_cards.progress(batches)
    before = done_of(batches)
    with window.store() as store:
        assert len(store.documents.all()) <= 5
    batches.resume_all()
    assert list(wait(batches).values()).count("done") == 5
    assert done_of(batches) >= before


def test_a_question_goes_before_many_documents(window, tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(40):
        (folder / f"{i}.txt").write_text(f"House {i} stands on a hill.")
    batches = window.batches
    batches.begin(items_of(window, folder), SummaryTask(length="50"))
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
    window.batches.begin(items_of(window, texts), BRIEF)
    states = wait(window.batches)
    assert set(states.values()) <= {"waiting", "queued", "running", "failed"}
    assert "/nowhere/at/all" in summary_cards.progress(window.batches)
    window.answer_worker.change_settings(window.settings)
    window.batches.resume_all()
    assert list(wait(window.batches).values()).count("done") == 5


def test_a_batch_is_forgotten_in_the_middle_with_all_that_was_made(window, texts):
    batches = window.batches
    batches.begin(items_of(window, texts), BRIEF)
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
    item = BatchItem(DocumentJob(text_id(text), f"/{text}", 9), text, "done", text)
    named = {"document": text_id(text), "name": text, "path": f"/{text}", "model": text}
    item.outcome = Outcome(item.job, "done", entry={**entry, **named}, seconds=1.0)
    return item


def test_whatever_documents_and_models_say_is_text():
    waiting, failed = (BatchItem(made(HOSTILE).job, HOSTILE, state, HOSTILE) for state in ("running", "failed"))
    shown = summary_cards.cards([made(HOSTILE), waiting, failed], lambda d: HOSTILE)
    assert "<img" not in shown
    assert "${" not in shown


def test_of_many_documents_those_near_the_work_are_shown():
    job = made("x").job
    items = [BatchItem(job, f"n{i}", "done" if i < 700 else "waiting") for i in range(1000)]
    drawn = summary_cards.cards(items, lambda d: None)
    assert drawn.count("<article") == summary_cards.MAX_CARDS
    assert ">n699<" in drawn
    assert ">n700<" in drawn
    assert "960 more" in drawn


# In a browser


@pytest.fixture
def tab(chromium, address):
    """A page that fails the test with a dialog, a script's error or a stray request."""
    watch, context = Watch(address.rstrip("/")), chromium.new_context()
    tab = Tab(watch.over(context.new_page())).open(address)
    tab.watch = watch
    yield tab
    context.close()
    assert watch.seen == []


def library(tab: Tab, *ticked: str) -> None:
    """Show the library, and tick documents."""
    tab.page.get_by_role("tab", name="Library").click()
    for name in ticked:
        tab.page.get_by_label(name, exact=True).check()


def exported(tab: Tab, tmp_path: Path) -> dict[str, str]:
    """What "Export all" gives."""
    with tab.page.expect_download() as saved:
        tab.page.locator("#summaries-save").click()
    saved.value.save_as(tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as all_of_it:
        assert len(all_of_it.namelist()) == len(set(all_of_it.namelist()))
        return {name: all_of_it.read(name).decode() for name in all_of_it.namelist()}


@pytest.mark.browser
def test_ticked_documents_are_summarized_through_a_pause_and_a_reload(tab, window, texts, tmp_path):
    items_of(window, texts)
    library(tab, "red.txt", "blue.txt", "green.txt")
    assert not tab.page.locator("#summaries").is_visible()
    with window.answer_worker.drained():  # so that it is in the middle for as long as this takes
        tab.page.locator("#summarize").click()
        tab.wait_for("0 of 3 documents done", "#summaries-progress")
        assert tab.page.locator(".lc-card").count() == 3
        tab.page.locator("#summaries-pause").click()
        tab.wait_for("paused", "#summaries-progress")
        tab.page.reload()
        tab.watch.seen = [seen for seen in tab.watch.seen if not seen.startswith("console: ")]
        library(tab)
        tab.page.locator("#summaries-pause", has_text="Resume").click()
    tab.wait_for("3 of 3 documents done", "#summaries-progress")
    cards = tab.page.locator(".lc-card")
    texts_of = [card.partition("\n")[2].strip() for card in cards.all_inner_texts()]
    assert all(texts_of)
    assert barriers(tab.page) == {}
    files = exported(tab, tmp_path)
    assert sorted(name[:3] for name in files) == ["blu", "gre", "red"]
    assert not any(str(tmp_path / "home") in text for text in files.values())
    cards.first.locator("h3 button").click()
    tab.wait_for("house stands on a hill", "#viewer")
    tab.page.locator("#summaries-close").click()
    tab.page.locator("#summaries").wait_for(state="hidden")
    assert window.batches.items == []


@pytest.mark.browser
def test_ticked_documents_fill_a_table_whose_values_open_their_sentences(tab, window, texts, tmp_path):
    items_of(window, texts)
    library(tab, "red.txt", "blue.txt")
    tab.page.locator("#table-options button").first.click()
    tab.page.locator("#table-make").click()
    tab.wait_for("the table has no column", "#summaries-progress")
    tab.page.locator("#table-columns textarea").fill("colour: Which colour is the door?\n\ndoors (number)")
    tab.page.locator("#table-make").click()
    tab.wait_for("2 of 2 documents done", "#summaries-progress")
    table = tab.page.locator(".lc-answers table")
    assert table.locator("thead th").all_inner_texts() == ["Document", "colour", "doors"]
    assert sorted(table.locator("tbody th").all_inner_texts()) == ["blue.txt", "red.txt"]
    hint = tab.page.get_by_text("Click a value to see its sentence.")
    assert hint.evaluate("e => getComputedStyle(e).fontSize") == "13px"
    item = next(item for item in window.batches.items if item.name == "red.txt")
    (answer, *_), quote = item.entry["answers"], "Its door is red."
    cited = {"document": item.job.source, "name": "red.txt", "page": None, "heading": None, "quote": quote}
    cited |= {"start": 34, "end": 34 + len(quote), "source": "quote", "weight": 1.0}
    answer |= {"answered": True, "answer": "red", "citations": [cited]}
    window.batches.version += 1
    tab.page.get_by_role("button", name="red", exact=True).click()
    tab.wait_for(quote, "#viewer")
    with tab.page.expect_download() as downloading:
        tab.page.locator("#summaries-save").click()
    file = tmp_path / "table.xlsx"
    downloading.value.save_as(file)
    assert [cell.value for cell in openpyxl.load_workbook(file).active[1]] == ["document", "colour", "doors"]
    assert barriers(tab.page) == {}


@pytest.mark.browser
def test_a_wrong_length_of_a_summary_is_told(tab, window, texts):
    items_of(window, texts)
    library(tab, "red.txt", "blue.txt")
    tab.page.locator("#summary-options button").first.click()
    length = tab.page.locator("#summary-length input")
    length.fill("a few lines")
    length.press("Enter")
    tab.page.locator("#summarize").click()
    assert "not valid" in tab.wait_for("a few lines", "#summaries-progress")


@pytest.mark.browser
def test_the_menu_of_a_chat_summarizes_its_documents(tab, window, texts):
    documents = [item.job.source for item in items_of(window, texts) if item.name in ("red.txt", "black.txt")]
    with window.store() as store:
        store.chats.create("Two houses", documents)
    tab.page.reload()
    tab.watch.seen = [seen for seen in tab.watch.seen if not seen.startswith("console: ")]
    tab.page.get_by_label("More for Two houses").click()
    tab.page.get_by_role("button", name="Summarize its documents").click()
    tab.wait_for("2 of 2 documents done", "#summaries-progress")
    assert sorted(tab.page.locator(".lc-card h3").all_inner_texts()) == ["black.txt", "red.txt"]


@pytest.mark.browser
def test_hostile_texts_are_shown_and_do_nothing(tab, window):
    texts = payloads("http://127.0.0.1:9")[::7]
    window.batches.items = [made(text) for text in texts]
    library(tab)
    tab.page.locator(".lc-card").nth(len(texts) - 1).wait_for()
    tab.page.evaluate("document.querySelectorAll('#summaries details').forEach(d => d.open = true)")
    shown = normal(tab.page.locator("#summaries").inner_text())
    assert [text for text in texts if normal(text) not in shown] == []
