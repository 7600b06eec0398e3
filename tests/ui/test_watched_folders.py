"""Watched folders on the library page: added, shown with what is ready, paused, and watched no longer."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import launched
from clock import wait_until
from window_checks import barriers

from localctx.idle import MachineReading
from localctx.serving.folder_watcher import FolderWatcher
from localctx.serving.watch_status import FolderStatus, WatchStatus
from localctx.store.watch_list import WatchedFolder
from localctx.ui.library.watched_folders import folder_list

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def context() -> Iterator:
    with launched() as browser:
        yield browser.new_context(viewport={"width": 1280, "height": 900})


@pytest.fixture
def page(context, window, address) -> Iterator:
    """The library page of a window on an idle machine; a dialog or an error of a script fails the test."""
    window.watcher = FolderWatcher(
        lambda: window.settings,
        window.library_worker,
        window.answer_worker,
        read_machine=lambda: MachineReading(mains=True, load=0.0),
        settle=0.3,
        quiet=0.1,
    )
    faults: list[str] = []
    page = context.new_page()
    page.on("dialog", lambda d: faults.append(d.message))
    page.on("pageerror", lambda e: faults.append(str(e)))
    page.goto(address)
    page.get_by_role("tab", name="Library").click()
    page.locator("#watch-path").wait_for()
    yield page
    page.close()
    assert faults == []


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "contracts"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.txt").write_text("".join(f"River {j} is {j * 37} km long.\n" for j in range(i, i + 26)))
    (folder / f"{HOSTILE.replace('/', '')}.txt").write_bytes(b"\x89PNG\r\n\x1a\n")
    return folder


def watch(page, path: object) -> None:
    page.locator("#watch-path textarea, #watch-path input").fill(str(path))
    page.locator("#watch-path button").click()


def test_a_folder_is_watched_until_it_is_not(page, window, folder):
    watch(page, folder / "nothing")
    page.locator("#watch-message").get_by_text("is not a folder on this computer").wait_for()
    watch(page, folder)
    page.locator("#watched").get_by_text("3 ready, 1 failed").wait_for()
    page.locator("#documents tbody tr").nth(2).wait_for()
    page.locator("#watched summary").click()
    assert f"{HOSTILE}.txt is a picture" in page.locator("#watched details").inner_text()
    assert barriers(page) == {}
    page.get_by_role("button", name="Pause contracts").click()
    page.locator("#watched").get_by_text("Paused: ").wait_for()
    (folder / "3.txt").write_text("River 99 is dry.")
    page.get_by_role("button", name="Resume contracts").click()
    page.locator("#watched").get_by_text("4 ready, 1 failed").wait_for()
    (folder / "0.txt").unlink()
    page.locator("#watched").get_by_text("1 deleted (still in the library)").wait_for()
    page.get_by_label("Never").last.check()
    page.get_by_role("button", name="Stop watching contracts").click()
    page.locator("#watched li").first.wait_for(state="detached")
    with window.store() as store:
        assert store.watch_list.folders() == []
        assert len(store.documents.all()) == 4
    assert window.settings.read_ahead == "off"


def test_a_window_goes_on_with_its_folders_after_a_restart(window, folder):
    with window.store() as store:
        store.watch_list.add(str(folder))
    window.watcher.start()
    wait_until(lambda: any(status.failed for status in window.watcher.status.folders))


def test_what_folders_and_files_are_called_is_no_markup():
    status = FolderStatus(WatchedFolder(f"/{HOSTILE}", 0.0), failed={f"/{HOSTILE}/a": f"/{HOSTILE}/a is {HOSTILE}"})
    html = folder_list(WatchStatus([status], f"parsing {HOSTILE}"))
    assert "<img" not in html
    assert html.count("&lt;img") >= 4
