"""A table that the window keeps current: in the server without a page, then in the library in a browser."""

import re
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from browser import Tab, Watch, served
from clock import PATIENCE, wait_until
from lease_answers import COLUMNS, RENT, answer_about_rents, write_lease
from window_checks import barriers
from window_in_process import opened, served_in_process

from localctx.batch.jobs import DocumentJob
from localctx.batch.table.columns import parse_column
from localctx.errors import UsageError
from localctx.serving.worker import EventStream
from localctx.store.store import Store
from localctx.ui.library.answer_table import MAX_NEWS, news_html, table_html
from localctx.ui.library.summaries_panel import SummariesPanel
from localctx.ui.running import table_keeper
from localctx.ui.running.batch_item import BatchItem
from localctx.ui.running.batch_runs import BatchRuns
from localctx.workflows.summary_task import SummaryTask

pytestmark = pytest.mark.slow

BUSY = "other programs use 90% of the processor"


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The names of the documents that were asked, and not answered from the store."""
    return answer_about_rents(monkeypatch)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "leases").mkdir()
    return tmp_path / "leases"


@contextmanager
def idle_window(home: Path, tiny_model: Path):
    """A window on a machine that is idle; ``window.why_not`` can say that it is not."""
    with opened(home, tiny_model) as window:
        window.why_not = ""
        window.watcher.why_not_read = lambda: window.why_not
        window.table.start()
        yield window


@pytest.fixture
def window(home, tiny_model):
    with idle_window(home, tiny_model) as window:
        yield window


def add(window, *files: Path) -> list[str]:
    """Read files into the library; their ids."""

    def read(session):
        yield session.workflows.store([str(file) for file in files])

    return next(ids for ids in window.library_worker.submit(read) if isinstance(ids, list))


def rents(window) -> dict[str, str]:
    """The rent of each document that has a row, and the state of those without."""
    with window.store() as store:
        rows = window.batches.rows(store)
    return {i.name: rows[i.job.path].cells[0].shown if i.job.path in rows else i.state for i in window.batches.items}


def wait_for(window, **wanted: str) -> None:
    """Wait until the table has exactly these rents, or states."""
    wait_until(lambda: rents(window) == {f"{name}.txt": rent for name, rent in wanted.items()}, str(wanted))


def filled(window) -> None:
    """Wait until what comes is new to the user."""
    wait_until(lambda: window.table._table.filled)


def news(window) -> list[str]:
    with window.store() as store:
        changes = window.table.unseen_changes(store, window.batches.rows(store))
    return re.findall("<li>(.*?)</li>", news_html(changes, window.batches.items))


# Without a page


def test_new_and_newer_documents_get_rows_and_deleted_ones_lose_theirs(window, folder, asked):
    add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
    window.table.turn_on(COLUMNS, None)
    wait_for(window, hart="1200.00 EUR")
    filled(window)
    assert news(window) == []
    add(window, write_lease(folder, "boat.txt", "EUR 90"))
    wait_for(window, boat="90.00 EUR", hart="1200.00 EUR")
    (newer,) = add(window, write_lease(folder, "hart.txt", "EUR 1,300"))
    wait_for(window, boat="90.00 EUR", hart="1300.00 EUR")
    assert asked == ["hart.txt", "boat.txt", "hart.txt"]
    assert news(window) == ["boat.txt: added, rent 90 EUR", "hart.txt: rent 1,200 EUR → 1,300 EUR"]
    window.delete("document", [newer])
    wait_for(window, boat="90.00 EUR", hart="1200.00 EUR")  # the older version is the current one again
    assert asked == ["hart.txt", "boat.txt", "hart.txt"]


def test_another_window_shows_it_again_and_asks_nothing_twice(home, tiny_model, folder, asked):
    with idle_window(home, tiny_model) as window:
        add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
        window.table.turn_on(COLUMNS, None)
        filled(window)
        add(window, write_lease(folder, "boat.txt", "EUR 90"))
        wait_for(window, boat="90.00 EUR", hart="1200.00 EUR")
    with idle_window(home, tiny_model) as window:
        window.why_not = BUSY  # answers of the store need no idle machine
        wait_for(window, boat="90.00 EUR", hart="1200.00 EUR")
        assert (window.batches.kept, window.batches.columns) == ("the whole library", COLUMNS)
        assert news(window) == ["boat.txt: added, rent 90 EUR"]
        with window.store() as store:
            window.table.note_seen(window.table.unseen_changes(store, window.batches.rows(store)))
        assert news(window) == []
    assert asked == ["hart.txt", "boat.txt"]


def test_new_documents_wait_until_the_machine_is_idle_or_the_user_says_so(window, folder, asked):
    add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
    window.why_not = BUSY
    window.table.turn_on(COLUMNS, None)
    wait_for(window, hart="1200.00 EUR")  # the user asked for it
    filled(window)
    add(window, write_lease(folder, "boat.txt", "EUR 90"), write_lease(folder, "dock.txt", "EUR 80"))
    wait_for(window, boat="later", dock="later", hart="1200.00 EUR")
    window.table.update()
    assert asked == ["hart.txt"]
    assert not window.batches.running
    window.batches.resume_all()
    wait_for(window, boat="90.00 EUR", dock="80.00 EUR", hart="1200.00 EUR")
    add(window, write_lease(folder, "pier.txt", "EUR 70"))
    wait_until(lambda: rents(window).get("pier.txt") == "later")
    window.why_not = ""
    wait_for(window, boat="90.00 EUR", dock="80.00 EUR", hart="1200.00 EUR", pier="70.00 EUR")


def test_a_pause_holds_for_documents_that_come_later(window, folder, asked):
    add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
    with window.answer_worker.drained():
        window.table.turn_on(COLUMNS, None)
        window.batches.pause()
        add(window, write_lease(folder, "boat.txt", "EUR 90"))
        wait_until(lambda: len(rents(window)) == 2)
        assert window.batches.paused
    assert asked == []
    window.batches.resume_all()
    wait_for(window, boat="90.00 EUR", hart="1200.00 EUR")


def test_it_belongs_to_a_collection_and_ends_with_it(window, folder, asked):
    hart, _ = add(window, write_lease(folder, "hart.txt", "EUR 1,200"), write_lease(folder, "boat.txt", "EUR 90"))
    with window.store() as store:
        collection = store.collections.add("Houses", [hart])
    window.table.turn_on(COLUMNS, collection)
    wait_for(window, hart="1200.00 EUR")
    assert window.batches.kept == "the collection “Houses”"
    with window.store() as store:
        store.collections.remove(collection)
    wait_until(lambda: not window.batches.kept)
    assert rents(window) == {"hart.txt": "1200.00 EUR"}
    assert asked == ["hart.txt"]


def test_a_collection_that_was_deleted_is_no_whole_library(window, folder, asked):
    add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
    with pytest.raises(UsageError, match="this collection was deleted"):
        window.table.turn_on(COLUMNS, 77)
    assert (window.batches.kept, asked) == ("", [])


def test_after_an_error_it_is_tried_again(window, folder, asked, monkeypatch):
    add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
    with window.answer_worker.drained():
        window.table.turn_on(COLUMNS, None)
        window.batches.pause("the disk is full")
    window.table.update()
    assert window.batches.paused
    monkeypatch.setattr(table_keeper, "RETRY", 0.0)
    wait_for(window, hart="1200.00 EUR")


def test_a_document_that_waits_in_the_queue_is_left_out_at_once():
    class Full:  # a worker without a free place
        submitted = threading.Event()

        def submit(self, job, background):
            self.submitted.set()
            return EventStream(job, self, False, background, False)

        def cancel(self, stream):
            pass

        def queue_position(self, stream):
            return 1

    runs, job = BatchRuns(Full(), 1), DocumentJob("/f/hart.txt", "hart", 1)
    runs.begin([BatchItem(job, "hart.txt")], SummaryTask())
    assert Full.submitted.wait(PATIENCE)
    runs.leave_out([job.source])
    assert (runs.items, runs.running) == ([], False)
    runs.close()


def test_it_is_turned_off_for_good(home, window, folder, asked):
    add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
    window.table.turn_on(COLUMNS, None)
    filled(window)
    window.table.turn_off()
    add(window, write_lease(folder, "boat.txt", "EUR 90"))
    window.table.update()
    assert rents(window) == {"hart.txt": "1200.00 EUR"}
    with closing(Store(home)) as store:
        assert list(store.db.query("SELECT * FROM written")) == []
    window.table.turn_on(COLUMNS, None)
    wait_for(window, boat="90.00 EUR", hart="1200.00 EUR")
    assert asked == ["hart.txt", "boat.txt"]


def test_it_waits_behind_summaries_and_comes_back(window, folder, asked):
    (hart,) = add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
    window.table.turn_on(COLUMNS, None)
    filled(window)
    with window.store() as store:
        row = store.documents.find(hart)
    window.batches.begin([BatchItem(DocumentJob.stored(row), row.name)], SummaryTask(questions=("Where?",)))
    wait_until(lambda: not window.batches.running)
    window.table.update()
    assert (window.batches.columns, window.batches.kept) == ((), "")
    SummariesPanel(window)._close()
    wait_for(window, hart="1200.00 EUR")
    assert window.batches.kept


def test_another_table_is_not_kept_while_one_is_filled(window, folder, asked):
    add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
    with window.answer_worker.drained():
        window.table.turn_on(COLUMNS, None)
        with pytest.raises(UsageError, match="are being read"):
            window.table.turn_on((parse_column("pets"),), None)
    with pytest.raises(UsageError, match="no column"):
        window.table.turn_on((), None)
    wait_for(window, hart="1200.00 EUR")


def test_a_document_that_is_deleted_while_it_is_asked_stays_deleted(window, folder, monkeypatch):
    begun, end = threading.Event(), threading.Event()
    answer_about_rents(monkeypatch, lambda name: (begun.set(), end.wait()))
    (hart,) = add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
    window.table.turn_on(COLUMNS, None)
    begun.wait()
    deleting = threading.Thread(target=window.delete, args=("document", [hart]))
    deleting.start()
    wait_until(lambda: window.batches.items == [])
    end.set()
    deleting.join()
    with window.store() as store:
        assert store.documents.all() == []
    window.table.update()
    assert rents(window) == {}


def test_of_many_changes_the_first_are_told(window, folder, asked):
    add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
    window.table.turn_on(COLUMNS, None)
    filled(window)
    names = [f"{i:02}" for i in range(MAX_NEWS + 3)]
    add(window, *(write_lease(folder, f"{name}.txt", "EUR 9") for name in names))
    wait_for(window, **dict.fromkeys(names, "9.00 EUR"), hart="1200.00 EUR")
    told = news(window)
    assert told[-2:] == [f"{MAX_NEWS - 1:02}.txt: added, rent 9 EUR", "and 3 more"]
    assert len(told) == MAX_NEWS + 1


def test_a_document_that_has_just_ended_has_a_row_at_once():
    ended = BatchItem(DocumentJob("0" * 64, "/hart.txt", 9), "hart.txt", "done")
    assert "hart.txt" in table_html(COLUMNS, [ended], {})


# In a browser


@pytest.mark.browser
def test_a_kept_table_tells_what_is_new_and_outlives_the_window(chromium, home, tiny_model, folder, asked, monkeypatch):
    page = chromium.new_page()
    watch, shown = Watch(""), page.locator(".lc-answers table tbody")
    tab = Tab(watch.over(page))
    with idle_window(home, tiny_model) as window, served_in_process(window) as address:
        watch.origin = address.rstrip("/")
        add(window, write_lease(folder, "hart.txt", "EUR 1,200"))
        tab.open(address)
        page.get_by_role("tab", name="Library").click()
        page.get_by_label("hart.txt", exact=True).check()
        page.locator("#table-options button").first.click()
        page.locator("#table-columns textarea").fill(RENT)
        page.locator("#table-keep input").check()
        page.locator("#table-make").click()
        tab.wait_for("1 of 1 documents done, kept current with the whole library", "#summaries-progress")
        filled(window)
        write_lease(folder, "boat.txt", "EUR 90")
        page.locator("#path textarea, #path input").fill(str(folder))
        page.locator("#path button").click()
        tab.wait_for("boat.txt: added, rent 90 EUR", "#summaries-news")
        assert page.locator("#summaries-progress .lc-sign").inner_text() == "1 new"
        assert [row.split() for row in shown.locator("tr").all_inner_texts()] == [
            ["boat.txt", "90.00", "EUR"],
            ["hart.txt", "1200.00", "EUR"],
        ]
        assert barriers(page, "#summaries") == {}
        page.goto("about:blank")
    for name, value in {"MODEL": tiny_model, "MAX_TOKENS": 4, "THREADS": 1}.items():
        monkeypatch.setenv(f"LOCALCTX_{name}", str(value))
    with served(home) as command:  # the real one, whose model knows no rents: they come from the store
        watch.origin, watch.seen = command.origin, []
        tab.open(command.url)
        page.get_by_role("tab", name="Library").click()
        tab.wait_for("boat.txt: added, rent 90 EUR", "#summaries-news")
        assert page.locator("#table-kept input").is_checked()
        page.locator("#summaries-seen").click()
        page.locator("#summaries-news").wait_for(state="hidden")
        assert shown.locator("tr").count() == 2
        page.locator("#table-kept input").uncheck()
        page.locator("#summaries-progress:not(:has-text('kept current'))").wait_for()
        page.locator("#summaries-close", has_text="Close").click()
        page.locator("#summaries").wait_for(state="hidden")
        command.process.kill()
    with closing(Store(home)) as store:
        assert list(store.db.query("SELECT * FROM written")) == []
    assert asked == ["hart.txt", "boat.txt"]
    assert watch.seen == []
    page.close()
