"""The window in a browser: a newcomer's journey, several tabs, stopping, hostile texts, and who uses no mouse."""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from browser import Served, Tab, Watch, canary, save_saying_model, served
from clock import seconds_since
from made_files import pdf
from payloads import payloads
from window_checks import barriers, normal

from localctx.store.documents import DocumentRow, text_id
from localctx.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PAGES = [f"Page {page} of the log. " + "The keeper of the harbour is Ann Marlow. " * 4 for page in range(1, 4)]
LONG = b"The river is long, and so is this text about it.\n" * 1500
SHORT = b"A text of one line, so that the library with the long text is not read in its place.\n"
COST = {
    "tokens": {"prompt": 900, "reused": 870, "prefilled": 30, "generated": 20, "longest": 150},
    "seconds": {"first_token": 0.2, "decode": 1.0},
    "kv": {"window": 4096},
}
WORDS = [f"{word} " for word in ("harbour", "keeper", "is", "Ann", "Marlow", "the", "of")]


@pytest.fixture(scope="module")
def away() -> Iterator[tuple[str, list[str]]]:
    with canary() as server:
        yield server


def talking(folder: Path, words: list[str], max_tokens: int):
    """A window on a model that says these words and no others."""
    model = save_saying_model(folder / "model", words)
    return served(
        folder / "home", "--model", model, "--max-tokens", max_tokens, "--draft", 0, "--threads", 1, "--together", 1
    )


@pytest.fixture(scope="module")
def window(tmp_path_factory, away) -> Iterator[Served]:
    """Its answers are hostile, and short: read again, each of their tokens is a hundred."""
    with talking(tmp_path_factory.mktemp("window"), WORDS + payloads(away[0])[::9], 100) as window:
        yield window


@pytest.fixture(scope="module")
def talkative(tmp_path_factory) -> Iterator[Served]:
    """Its answers take seconds, in which they are stopped."""
    with talking(tmp_path_factory.mktemp("talkative"), WORDS, 2000) as window:
        yield window


@pytest.fixture(scope="module")
def context(chromium) -> Iterator:
    """A user of the browser, who has the window's scripts after the first tab: fetching them is half of opening one."""
    with chromium.new_context() as context:
        yield context


@contextmanager
def open_tabs(context, window: Served, away) -> Iterator[Callable[..., Tab]]:
    """A function that opens another tab, in a browser that knows nothing of other tests but the window's scripts."""
    watch = Watch(window.origin)

    def tab(path: str = "/", width: int = 1280, height: int = 800, scheme: str = "light") -> Tab:
        page = watch.over(context.new_page())
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        return Tab(page).open(window.url.replace("/?", f"{path}{'&' if '?' in path else '?'}", 1))

    yield tab
    titles = [page.title() for page in context.pages]
    for page in context.pages:
        page.evaluate("localStorage.clear()")
        page.close()
    context.clear_cookies()
    assert set(titles) <= {"localctx"}
    assert watch.seen == []
    assert away[1] == []


@pytest.fixture
def tabs(context, window, away) -> Iterator[Callable[..., Tab]]:
    with open_tabs(context, window, away) as tabs:
        yield tabs


@pytest.fixture
def talkative_tabs(context, talkative, away) -> Iterator[Callable[..., Tab]]:
    with open_tabs(context, talkative, away) as tabs:
        yield tabs


def test_a_newcomer_asks_a_pdf_stops_an_answer_and_finds_everything_again(talkative_tabs):
    tab = talkative_tabs()
    tab.drop("log.pdf", pdf(PAGES))
    tab.ask("Who keeps the harbour?")
    tab.answer()
    assert "% already read" in tab.details()
    assert "log.pdf · p. " in tab.conversation.inner_text()
    quoted = tab.page.locator(".lc-quote blockquote").first.inner_text()
    assert all(line in " ".join(PAGES) for line in quoted.split("\n\n"))  # of two pages, maybe

    tab.ask("And who else?")
    tab.page.wait_for_function("document.querySelectorAll('#conversation [data-testid=bot]').length > 1")
    tab.stop.click()
    tab.answer()
    assert "Stopped" in tab.conversation.text_content()
    tab.page.wait_for_function("location.search.includes('chat=')")
    tab.page.reload()
    tab.wait_for("And who else?", "#conversation")
    costs = tab.page.locator(".lc-cost")
    assert "Stopped" in costs.last.text_content()
    tab.ask("And now?")
    tab.answer()
    assert 50 < tab.read_share() < 100
    kept, prompt = re.search(r"([0-9,]+) of ([0-9,]+) tokens were kept", costs.last.text_content()).groups()
    assert number(prompt) > number(kept) > 400


def test_the_sample_question_is_answered_by_the_default_model(chromium, default_home):
    with served(default_home, "--max-tokens", 40) as window:
        watch, context = Watch(window.origin), chromium.new_context()
        tab = Tab(watch.over(context.new_page())).open(window.url)
        tab.wait_for("is ready")
        tab.page.get_by_text("Try the sample").click()
        assert "already read" in tab.details()
        assert "sample.md" in tab.page.locator(".lc-quote").first.inner_text()
        context.close()
    assert watch.seen == []


def test_two_tabs_take_turns_and_hold_only_their_own_texts(tabs):
    one, two = tabs(), tabs()
    two.drop("two.txt", SHORT)
    one.drop("long.txt", LONG)
    one.ask("What is in tab one?")
    one.wait_for("Reading")
    two.ask("What is in tab two?")
    assert "one question is before yours" in two.wait_for("Waiting")
    one.stop.click()
    one.answer()
    assert "tab one" not in two.answer()
    assert "tab two" in two.conversation.inner_text()
    assert "tab two" not in one.conversation.inner_text()


def test_who_stops_a_long_reading_frees_the_engine_within_a_second(tabs):
    one, two = tabs(), tabs()
    two.drop("next.txt", b"next" + SHORT)
    one.drop("stop.txt", b"stop" + LONG)
    one.ask("What is there?")
    one.wait_for("Reading")
    two.ask("And here?")
    two.wait_for("Waiting")
    start = time.monotonic()
    one.stop.evaluate("button => button.click()")
    two.page.wait_for_function("!document.querySelector('#status').innerText.includes('Waiting')", polling=10)
    seconds = seconds_since(start)
    print(f"the next is served after {seconds:.2f} s")
    two.answer()
    assert seconds < (2 if "PYTEST_XDIST_WORKER" in os.environ else 1)  # another test has one of the cores


def test_hostile_texts_are_shown_and_do_nothing(window, tabs, away):
    texts = payloads(away[0])
    chat = write_everywhere(window.home, texts)
    tab = tabs(f"/?chat={chat}")
    tab.wait_for(texts[-1].split("\n")[0], "#conversation")
    earlier = tab.page.locator("#earlier")
    while earlier.is_visible():
        label = earlier.inner_text()
        earlier.click()
        tab.page.wait_for_function("old => document.querySelector('#earlier')?.innerText !== old", arg=label)
    shown = normal(tab.conversation.inner_text())
    assert [t for t in texts if normal(t) not in shown] == []
    tab.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    tab.page.get_by_role("button", name="+ Add").click()
    tab.page.locator("#about input").click()
    for name in tab.page.get_by_role("tab").all():
        name.click()
        tab.page.wait_for_timeout(300)
    tab.page.get_by_role("tab", name="Library").click()
    tab.page.locator("#words textarea, #words input").fill("script img onerror alert")
    tab.page.locator("#words button").click()
    tab.page.wait_for_selector("#hits .lc-hit")
    tab.page.evaluate("document.querySelectorAll('#hits details').forEach(d => d.open = true)")
    tab.page.get_by_role("tab", name="Chats").click()
    tab.page.locator("#new-chat").click()
    tab.page.wait_for_function("!document.querySelector('#conversation [data-testid=bot]')")
    tab.ask("\n".join(texts[::5]))
    tab.answer()
    tab.page.wait_for_timeout(500)


NARROW = {"width": 390, "height": 844}
LOOKS = {"light": {}, "narrow-dark": {**NARROW, "scheme": "dark"}}  # all four are looked at by test_looks.py


@pytest.mark.parametrize("look", LOOKS)
def test_every_tab_is_readable_for_everybody(window, tabs, tmp_path, look):
    folder = Path(os.environ.get("LOCALCTX_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    chat = said_before(window.home)
    tab = tabs(f"/?chat={chat}{'&__theme=dark' if 'dark' in look else ''}", **LOOKS[look])
    tab.wait_for("Ann Marlow", "#conversation")
    found = {}
    for name in tab.page.get_by_role("tab").all_inner_texts():
        tab.page.get_by_role("tab", name=name).click()
        tab.page.wait_for_timeout(400)
        tab.page.screenshot(path=folder / f"{name.lower()}-{look}.png")
        found |= {f"{name}: {k}": v for k, v in barriers(tab.page).items()}
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert tab.page.evaluate(wide) <= 0, f"{name} scrolls sideways"
    assert found == {}


def test_everything_can_be_done_from_the_keyboard(talkative, talkative_tabs):
    tab = talkative_tabs(f"/?chat={said_before(talkative.home)}")
    tab.wait_for("Ann Marlow", "#conversation")
    keys = tab.page.keyboard
    assert tab.page.evaluate("document.activeElement.matches('#question textarea')")
    keys.type("Who else?")
    keys.press("Enter")
    tab.wait_for("Answering")
    tab.stop.focus()
    keys.press("Enter")
    tab.answer()
    assert "Stopped" in tab.conversation.text_content()
    tab.page.locator(".lc-quote button").first.focus()
    keys.press("Enter")
    tab.page.locator("#viewer mark.lc-cited").wait_for()


def number(text: str) -> int:
    return int(text.replace(",", ""))


def write_everywhere(home: Path, texts: list[str]) -> str:
    """``texts`` as documents, names, titles, questions, answers and what those cite; the chat that has them all."""
    with closing(Store(home)) as store:
        for i, t in enumerate(texts):
            text = f"{i}\n{t}\nend"
            row = DocumentRow(text_id(text), t, f"/{i}/{t}", "utf-8", len(text), len(text), time.time(), time.time())
            store.documents.add(row, text, [])
            store.chats.create(t)
        chat, last = store.chats.create("all of them").id, None
        for i, t in enumerate(texts):
            text = f"{i}\n{t}\nend"
            cited = {"document": text_id(text), "name": t, "page": t, "heading": t, "start": 2, "end": 2 + len(t)}
            cited |= {"quote": t, "source": "passage", "weight": 0.5}
            last = store.chats.append(chat, last, "user", t).id
            last = store.chats.append(chat, last, "assistant", t, [cited] if i % 4 == 0 else [], COST).id
    return chat


def said_before(home: Path) -> str:
    """A chat with an answer and what it cites."""
    text = " ".join(PAGES)
    with closing(Store(home)) as store:
        row = DocumentRow(text_id(text), "log.pdf", "/log.pdf", "pdf", 900, len(text), time.time(), time.time())
        store.documents.add(row, text, [])
        chat = store.chats.create("The harbour", [row.id]).id
        cited = {"document": row.id, "name": "log.pdf", "page": "1", "heading": None, "start": 0, "end": 60}
        cited |= {"quote": text[:60], "source": "attention", "weight": 0.5}
        asked = store.chats.append(chat, None, "user", "Who keeps the harbour?").id
        store.chats.append(chat, asked, "assistant", "Ann Marlow.", [cited], COST)
    return chat
