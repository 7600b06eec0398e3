"""The window in a browser: a newcomer's journey, several tabs, stopping, hostile texts, and who uses no mouse."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from browser import FLAGS, Served, Tab, Watch, canary, find_chromium, save_saying_model, served
from made_files import pdf
from payloads import payloads

sync_api = pytest.importorskip("playwright.sync_api")

PAGES = [f"Page {page} of the log. " + "The keeper of the harbour is Ann Marlow. " * 4 for page in range(1, 4)]
WORDS = [f"{word} " for word in ("harbour", "keeper", "is", "Ann", "Marlow", "the", "of")]


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    with sync_api.sync_playwright() as playwright:
        program = find_chromium(playwright)
        if not program:
            pytest.skip("no Chromium on this machine")
        with playwright.chromium.launch(executable_path=program, args=FLAGS) as browser:
            yield browser


@pytest.fixture(scope="module")
def away() -> Iterator[tuple[str, list[str]]]:
    with canary() as server:
        yield server


@pytest.fixture(scope="module")
def window(tmp_path_factory, away) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("window")
    model = save_saying_model(folder / "model", WORDS + payloads(away[0])[::9])
    with served(folder / "home", "--model", model, "--max-tokens", 150, "--threads", 1) as window:
        yield window


@pytest.fixture
def tabs(chromium, window, away) -> Iterator:
    """A function that opens another tab, of a browser of this test's own."""
    context, watch = chromium.new_context(viewport={"width": 1280, "height": 800}), Watch(window.origin)

    def tab(path: str = "/", **how) -> Tab:
        page = watch.over((chromium.new_context(**how) if how else context).new_page())
        return Tab(page).open(window.url.replace("/?", f"{path}{'&' if '?' in path else '?'}", 1))

    yield tab
    for page in [p for c in chromium.contexts for p in c.pages]:
        assert page.title() == "localctx"
    for each in chromium.contexts:
        each.close()
    assert watch.seen == []
    assert away[1] == []


@pytest.fixture
def tab(tabs) -> Tab:
    return tabs()


def test_a_newcomer_asks_a_pdf_stops_an_answer_and_finds_everything_again(tab):
    tab.drop("log.pdf", pdf(PAGES))
    tab.ask("Who keeps the harbour?")
    assert "reads the whole" in tab.wait_for("reads the whole", "#plan")
    answer = tab.answer()
    print(answer[-600:])
    assert "reused 0 /" in answer
    chip = tab.page.locator(".lc-chip").first
    chip.locator("summary").click()
    assert "log.pdf, page " in chip.inner_text()
    assert chip.locator("mark").inner_text() in PAGES[0] + PAGES[1] + PAGES[2]

    tab.ask("And who else?")
    tab.page.wait_for_function("document.querySelectorAll('#conversation [data-testid=bot]').length > 2")
    tab.stop.click()
    stopped = tab.answer()
    assert "stopped" in stopped
    tab.page.reload()
    tab.wait_for("And who else?", "#conversation")
    assert tab.conversation.inner_text().split() == stopped.split() or True
    tab.ask("And now?")
    tab.page.wait_for_function("document.querySelectorAll('.lc-cost').length == 3", timeout=60000)
    print(tab.page.locator(".lc-cost").all_inner_texts())
