"""The library page in a browser: documents in, listed, prepared, pinned, exported, imported, searched, deleted."""

import threading
import time
from collections.abc import Iterator

import pytest
from clock import seconds_since
from made_files import pdf

from localctx.ui.library import library_table

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=alert(1)>${alert(2)}"


@pytest.fixture(scope="module")
def context(chromium):
    """A user of the browser, who has the window's scripts after the first test: fetching them is half of a visit."""
    return chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)


@pytest.fixture
def page(context, tiny_address) -> Iterator:
    """The library page; a dialog or an error of a script fails the test."""
    faults: list[str] = []
    page = context.new_page()
    page.on("dialog", lambda d: faults.append(d.message))
    page.on("pageerror", lambda e: faults.append(str(e)))
    page.goto(tiny_address)
    page.get_by_role("tab", name="Library").click()
    page.wait_for_selector("#documents .lc-status, #documents table")
    yield page
    page.close()
    assert faults == []


def names(page) -> list[str]:
    return page.locator("#documents tbody th .lc-open-source").all_inner_texts()


def add(page, path: object, ends: str) -> str:
    """Read a path of this machine; what the queue says when it says how it ``ends``."""
    page.locator("#path textarea, #path input").fill(str(path))
    page.locator("#path button").click()
    try:
        page.locator("#queue").get_by_text(ends).wait_for()
    except sync_api.TimeoutError as e:
        named, queue = page.locator("#path textarea, #path input").input_value(), page.locator("#queue").inner_text()
        raise AssertionError(f"{path} was to be read; named is {named!r}, the queue says {queue!r}") from e
    page.wait_for_selector("#cancel-adding", state="hidden")
    return page.locator("#queue").inner_text()


def tick(page, *wanted: str) -> None:
    for name in wanted:
        page.get_by_label(name, exact=True).check()


def said(page, words: str) -> str:
    page.locator("#library-status").get_by_text(words).first.wait_for()
    return page.locator("#library-status").inner_text()


def test_documents_come_in_are_listed_and_found(page, tiny_window, tmp_path):
    assert "The library is empty" in page.locator("#documents").inner_text()
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.pdf").write_bytes(pdf(["Herons fish here.", "Storks do not."], [("Storks", 1)]))
    (folder / f"b {HOSTILE.replace('/', '')}.txt").write_text(f"{HOSTILE} about herons")
    (folder / "c.txt").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert "is a picture; pictures cannot be read yet" in add(page, folder, "3 of 3 files, 1 failed")
    page.locator("#documents tbody tr").nth(1).wait_for()
    assert len(names(page)) == 2
    add(page, folder / "a.pdf", "unchanged")
    (folder / "a.pdf").write_bytes(pdf(["Herons fish at night."], []))
    add(page, folder / "a.pdf", "new version")
    page.get_by_text("older version").wait_for()
    page.locator("#words textarea, #words input").fill("HERONS")
    page.locator("#words button").click()
    page.locator("#hits mark").first.wait_for()
    assert set(page.locator("#hits summary mark").all_inner_texts()) == {"Herons", "herons"}
    page.locator("#hits summary").first.click()
    assert page.locator("#hits details[open] blockquote mark").first.inner_text().lower() == "herons"
    tick(page, next(name for name in names(page) if HOSTILE[:4] in name))
    page.locator("#filter textarea, #filter input").fill("A.P")
    page.wait_for_function("document.querySelectorAll('#documents tbody tr').length == 2")
    assert page.locator("#documents .lc-pick:checked").count() == 0, "a tick stayed at its place"


def test_what_is_kept_is_prepared_pinned_carried_elsewhere_and_deleted(page, tiny_window, tmp_path):
    rivers = tmp_path / "rivers.txt"
    rivers.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(26)))
    page.set_input_files("#drop input[type=file]", rivers)
    page.locator("#queue").get_by_text("636 characters, ").wait_for()  # not "0 / 636 characters", which it also says
    assert str(tiny_window.uploads) not in page.locator("#queue").inner_text()
    assert not page.locator("#prepare").is_visible(), "nothing is ticked"
    tick(page, "rivers.txt")
    page.locator("#prepare").click()
    assert "rivers.txt: 100 % is read and kept" in said(page, "is read and kept")
    assert not page.locator("#unpin").is_visible(), "it is not pinned"
    page.get_by_role("button", name="Pin", exact=True).click()
    row = page.locator("#documents tbody tr", has_text="rivers.txt")
    row.get_by_text("pinned").wait_for()
    page.locator("#unpin").wait_for()
    assert not page.locator("#pin").is_visible(), "it is pinned already"
    assert "Ready" in row.inner_text()
    page.get_by_role("button", name="Export", exact=True).click()
    with page.expect_download() as saved:
        page.locator("a[download='rivers.txt.lctx']").click()
    bundle = tmp_path / "rivers.lctx"
    saved.value.save_as(bundle)
    page.locator("#delete").click()
    page.locator("#undo-document-line").get_by_text("Deleted “rivers.txt”").wait_for()
    page.wait_for_function("!document.querySelector('#documents').innerText.includes('rivers.txt')")
    with page.expect_file_chooser() as chooser:
        page.locator("#import").click()
    chooser.value.set_files(bundle)
    assert "already read" in said(page, "rivers.txt imported")
    tick(page, "rivers.txt")
    page.locator("#ask-about").click()
    page.locator("#sources").get_by_text("rivers.txt").wait_for()
    assert page.get_by_role("tab", name="Chat").get_attribute("aria-selected") == "true"


def test_what_is_ticked_while_the_table_is_drawn_anew_stays_ticked(page, tiny_window, tmp_path, monkeypatch):
    (one := tmp_path / "one.txt").write_text("Text one.")
    (two := tmp_path / "two.txt").write_text("Text two.")
    add(page, one, "1 of 1")
    page.get_by_label("one.txt", exact=True).wait_for()
    draw, asked, ticked = library_table.documents, threading.Event(), threading.Event()

    def slow(*how) -> str:
        asked.set()
        assert ticked.wait(10)
        return draw(*how)

    monkeypatch.setattr(library_table, "documents", slow)
    add(page, two, "1 of 1")
    assert asked.wait(10)
    tick(page, "one.txt")
    ticked.set()
    page.get_by_label("two.txt", exact=True).wait_for()
    assert page.get_by_label("one.txt", exact=True).is_checked()
    assert not page.get_by_label("two.txt", exact=True).is_checked()


def test_cancel_stops_within_a_second_and_keeps_what_was_read(page, tiny_window, tmp_path, monkeypatch):
    from localctx.library import add as adding

    folder = tmp_path / "slow"
    folder.mkdir()
    for name in "pqr":
        (folder / f"{name}.txt").write_text(f"text {name}")
    read = adding.read_document

    def slow(source, options):
        while source.endswith("q.txt") and not options.cancelled():
            time.sleep(0.02)
        return read(source, options)

    monkeypatch.setattr(adding, "read_document", slow)
    page.locator("#path textarea, #path input").fill(str(folder))
    page.locator("#path button").click()
    page.get_by_text("1 of 3 files").wait_for()
    start = time.monotonic()
    page.locator("#cancel-adding").click()
    page.get_by_text("Stopped; files already read stay").wait_for()
    assert seconds_since(start) < 1.5  # of which the browser takes a part
    page.get_by_label("p.txt", exact=True).wait_for()
    assert "r.txt" not in names(page)
