"""Measures what a user of the window waits for: the first page, a chat of 500 messages, an answer in it, a long PDF.

    python measure_window.py [--runs 3]

It needs Chromium and the default model. Each figure is the median of the runs, with the least and the largest.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import harness  # noqa: F401
import psutil
from browser import Served, Tab, launched, served
from made_files import pdf
from stored_documents import add

from localctx.library.add import add_document
from localctx.settings import load_settings
from localctx.store.store import Store

MESSAGES = 500
PAGES = 500
IDLE = 20  # seconds over which an idle window's use of a processor is measured
TEXT = "The keeper of the harbour is Ann Marlow. She lights the lamp at dusk and puts it out at dawn.\n"
QUESTION = "Who is the keeper of the harbour?"


@contextmanager
def window(home: Path) -> Iterator[tuple[Served, float]]:
    """A window on the default model, and the time at which its command was started."""
    start = time.monotonic()
    with served(home) as opened:
        yield opened, start


def first_page(browser, home: Path) -> dict[str, float]:
    """Seconds from the command, and from the request of the page, until a question can be typed; from the first paint
    on too.
    """
    with window(home) as (opened, start):
        context = browser.new_context()
        page = context.new_page()
        asked = time.monotonic()
        Tab(page).open(opened.url)
        page.locator("#question .submit-button").wait_for()
        usable = time.monotonic()
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0") / 1000
        context.close()
    return {
        "command to usable": usable - start,
        "request to usable": usable - asked,
        "first paint to usable": usable - asked - paint,
    }


def chats(browser, home: Path) -> dict[str, float]:
    """Seconds until a long chat is shown that was chosen in the list, and until an answer in it, and in a short one, is
    there: the first one, for which what was said is read once, and the next.
    """
    with closing(Store(home)) as store:
        document = add(store, TEXT)[0]
        ids = {name: chat_of(store, document, count) for name, count in (("short", 2), ("long", MESSAGES))}
    found = dict[str, float]()
    with window(home) as (opened, _):
        context = browser.new_context()
        tab = Tab(context.new_page()).open(opened.url)
        for name, chat in [("short", ids["short"]), *ids.items()]:  # the first loads the model
            tab.page.locator("#new-chat").click()
            tab.page.wait_for_function("!document.querySelector('#conversation [data-testid=bot]')")
            start = time.monotonic()
            tab.page.locator(f"#chats [data-chat='{chat}']").click()
            tab.wait_for("Answer", "#conversation")
            found[f"{name} chat opens"] = time.monotonic() - start
            for which in ("first", "next"):
                start = time.monotonic()
                tab.ask(QUESTION)
                tab.answer()
                found[f"{name} chat, {which} answer"] = time.monotonic() - start
        context.close()
        found["idle, share of a processor"] = idle_share(browser, opened)
    return found


def idle_share(browser, opened: Served) -> float:
    """The share of one processor that the window's process uses while a page is open and nothing is done."""
    context = browser.new_context()
    Tab(context.new_page()).open(opened.url)
    process = psutil.Process(opened.process.pid)
    time.sleep(5)
    before, start = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(IDLE)
    share = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - start)
    context.close()
    return share


def chat_of(store: Store, document: str, count: int) -> str:
    """A chat about a document, with ``count`` messages."""
    chat, last = store.chats.create("The harbour", [document]).id, None
    for i in range(count):
        text = f"Answer {i // 2}: the lamp is lit." if i % 2 else f"What of evening {i // 2}?"
        last = store.chats.append(chat, last, "assistant" if i % 2 else "user", text).id
    return chat


def long_pdf(browser, home: Path) -> dict[str, float]:
    """Seconds until the viewer shows the text, and the picture, of a page of a long PDF."""
    file = home.parent / "long.pdf"
    file.write_bytes(pdf([f"Page {i}\n{TEXT}" for i in range(1, PAGES + 1)]))
    with closing(Store(home)) as store:
        add_document(store, str(file))
    with window(home) as (opened, _):
        context = browser.new_context()
        page = context.new_page()
        Tab(page).open(opened.url)
        page.get_by_role("tab", name="Library").click()
        link = page.locator("#documents .lc-open-source", has_text="long.pdf")
        link.wait_for()
        start = time.monotonic()
        link.click()
        page.locator("#viewer-name", has_text="long.pdf").wait_for()
        shown = time.monotonic() - start
        page.wait_for_function("document.querySelector('#viewer img')?.complete")
        drawn = time.monotonic() - start
        context.close()
    return {f"PDF of {PAGES} pages opens": shown, f"PDF of {PAGES} pages is drawn": drawn}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    models = load_settings().models
    figures: dict[str, list[float]] = {}
    ways: tuple[Callable[..., dict[str, float]], ...] = (first_page, chats, long_pdf)
    with launched() as browser:
        for _ in range(runs):
            for way in ways:
                with tempfile.TemporaryDirectory() as folder:
                    home = Path(folder) / "home"
                    home.mkdir()
                    (home / "models").symlink_to(models)
                    for name, seconds in way(browser, home).items():
                        figures.setdefault(name, []).append(seconds)
    for name, found in figures.items():
        print(f"{name:32}{statistics.median(found):8.2f}   ({min(found):.2f} to {max(found):.2f})")


if __name__ == "__main__":
    main()
