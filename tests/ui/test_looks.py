"""How the window looks and reads: contrast in both themes, words, names of files, groups of chats, keys."""

import re
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from browser import Served, Tab, Watch, save_saying_model, served
from made_files import pdf
from window_checks import barriers

from localctx.library.search.search import Passage, SearchResult
from localctx.store.chats import Chat
from localctx.store.documents import DocumentRow, text_id
from localctx.store.store import Store
from localctx.ui.chat.chat_groups import chat_list, found_chats
from localctx.ui.library import library_table
from localctx.ui.library.library_table import IncomingFile

pytestmark = [pytest.mark.slow, pytest.mark.browser]

TECHNICAL = re.compile(r"\btokens?\b|\bKV\b|\bcodecs?\b|\bkeepers?\b|\bprefill|(?<!\S)--[a-z]", re.IGNORECASE)
LOG = "The keeper of the harbour is Ann Marlow. She lights the lamp at dusk. " * 8
LOOKS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
TABS = ("Chats", "Library", "Settings")
# The lowest contrast of what can be typed in or ticked: its border against what is around it, 3 : 1 by WCAG 1.4.11.
CONTRAST = """element => {
  const rgb = (colour) => colour.match(/[\\d.]+/g).map(Number)
  const linear = (v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4
  const light = (c) => c.slice(0, 3).reduce((sum, v, i) => sum + linear(v / 255) * [.2126, .7152, .0722][i], 0)
  let around = element.parentElement
  while (around && (rgb(getComputedStyle(around).backgroundColor)[3] ?? 1) === 0) around = around.parentElement
  const [a, b] = [getComputedStyle(element).borderTopColor, getComputedStyle(around ?? document.body).backgroundColor]
    .map(colour => light(rgb(colour))).sort((x, y) => y - x)
  return parseFloat(getComputedStyle(element).borderTopWidth) > 0 ? (a + .05) / (b + .05) : 1
}"""
SHOWN = """() => [document.body.innerText, ...[...document.querySelectorAll('[placeholder], [title], [aria-label]')]
  .filter(e => e.checkVisibility()).map(e => [e.placeholder, e.title, e.ariaLabel].join(' '))].join('\\n')"""


@pytest.fixture(scope="module")
def window(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("looks")
    model = save_saying_model(folder / "model", [f"{word} " for word in ("Ann", "lights", "the", "lamp", "of")])
    with served(folder / "home", "--model", model, "--max-tokens", 8, "--threads", 1) as window:
        yield window


@pytest.fixture
def tabs(chromium, window) -> Iterator:
    """A function that opens a tab of a width and a colour scheme."""
    with chromium.new_context() as context:
        watch = Watch(window.origin)

        def tab(width: int = 1280, scheme: str = "light", path: str = "/") -> Tab:
            page = watch.over(context.new_page())
            page.set_viewport_size({"width": width, "height": 844})
            page.emulate_media(color_scheme=scheme)
            return Tab(page).open(window.url.replace("/?", f"{path}{'&' if '?' in path else '?'}", 1))

        yield tab
        for page in context.pages:
            page.close()
        assert watch.seen == []


def add(store: Store, text: str, name: str) -> str:
    row = DocumentRow(text_id(text), name, f"/{name}", "utf-8", len(text), len(text), time.time(), time.time())
    store.documents.add(row, text, [])
    return row.id


def said(home: Path, title: str, question: str, answer: str) -> str:
    """A chat with a question and its answer."""
    cost = {"tokens": {"prompt": 900, "reused": 870, "prefilled": 30, "generated": 20, "longest": 150}}
    cost |= {"seconds": {"first_token": 0.2, "decode": 1.0}, "kv": {"window": 4096}}
    with closing(Store(home)) as store:
        chat = store.chats.create(title, [add(store, f"{title} {LOG}", f"{title}.txt")]).id
        asked = store.chats.append(chat, None, "user", question).id
        store.chats.append(chat, asked, "assistant", answer, [], cost)
    return chat


# What can be seen


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_page_is_readable_in_both_themes_at_both_widths(tabs, window, width, scheme):
    chat = said(window.home, "Lamps", "Who lights the lamp?", "Ann Marlow.")
    tab = tabs(width, scheme, f"/?chat={chat}{'&__theme=dark' if scheme == 'dark' else ''}")
    tab.wait_for("Ann Marlow.", "#conversation")
    tab.drop("a long name of a file.txt", LOG.encode())
    page, found = tab.page, {}
    for name in TABS:
        page.get_by_role("tab", name=name).click()
        page.get_by_role("tabpanel").filter(visible=True).first.wait_for()
        page.wait_for_timeout(300)  # colours change slowly
        found |= {f"{name}: {k}": v for k, v in barriers(page).items()}
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, f"{name} scrolls sideways"
    assert found == {}
    assert page.locator("body").evaluate("b => b.classList.contains('dark')") == (scheme == "dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_can_be_typed_in_or_ticked_has_a_border_that_can_be_seen(tabs, window, scheme):
    with closing(Store(window.home)) as store:
        add(store, LOG, "log.txt")
    tab = tabs(1280, scheme, f"/{'?__theme=dark' if scheme == 'dark' else ''}")
    page = tab.page
    seen = {place: page.locator(place).first.evaluate(CONTRAST) for place in ("#question", "#conversation .lc-drop")}
    page.get_by_role("tab", name="Library").click()
    page.locator("#documents .lc-pick").first.wait_for()
    seen["a box"] = page.locator("#documents .lc-pick").first.evaluate(CONTRAST)
    page.locator("#documents .lc-pick").first.check()
    for place in ("#only input", "#filter input", "#words .input-container"):
        seen[place] = page.locator(place).first.evaluate(CONTRAST)
    assert {place: ratio for place, ratio in seen.items() if ratio < 3} == {}


def test_the_question_box_is_at_the_bottom_and_lines_are_short_enough_to_read(tabs, window):
    chat = said(window.home, "Long", "What is it?", LOG)
    for width in (1280, 390):
        tab = tabs(width, path=f"/?chat={chat}")
        tab.wait_for("Ann Marlow", "#conversation")
        box = tab.page.locator("#question").bounding_box()
        assert 844 - 40 < box["y"] + box["height"] <= 844
        answer = tab.page.locator(".lc-answer").first.bounding_box()
        assert answer["width"] <= 40 * 16


def test_files_wait_under_their_names_and_may_fall_anywhere(tabs):
    tab = tabs()
    tab.drop("lease of 2024.txt", LOG.encode())
    chip = tab.page.locator("#ready-card .lc-doc")
    chip.get_by_text("lease of 2024.txt").wait_for()
    files = tab.page.evaluate_handle(
        "() => { const all = new DataTransfer(); all.items.add(new File(['Two.'], 'two.txt')); return all }"
    )
    tab.page.locator("#conversation").dispatch_event("drop", {"dataTransfer": files})
    chip.get_by_text("two.txt").wait_for()
    tab.page.get_by_role("button", name="Remove lease of 2024.txt").click()
    tab.page.wait_for_function("document.querySelectorAll('#ready-card .lc-doc').length === 1")
    assert "two.txt" in chip.inner_text()


def test_an_empty_chat_is_one_place_to_drop_a_document_and_a_sample(tabs):
    page = tabs().page
    with page.expect_file_chooser():
        page.get_by_text("Drop a document. It stays on this computer.").click()
    assert page.get_by_role("button", name="Try the sample").is_visible()


def test_the_first_drop_takes_the_place_of_the_welcome(tabs):
    tab = tabs(390)
    tab.drop("lease.txt", LOG.encode())
    tab.page.locator("#ready-card .lc-doc").wait_for()
    assert not tab.page.locator(".lc-empty").is_visible()


def test_a_table_keeps_its_headings_on_a_phone(tabs, window):
    with closing(Store(window.home)) as store:
        add(store, "A text with a day.", "day.txt")
    page = tabs(390).page
    page.get_by_role("tab", name="Library").click()
    used = page.locator("#documents td[data-of='Last used']").first
    used.wait_for()
    assert "Last used" in used.evaluate("e => getComputedStyle(e, '::before').content")
    place = used.bounding_box()
    assert place["x"] >= 0
    assert place["x"] + place["width"] <= 390


# What it says


def test_no_page_has_technical_words(tabs, window):
    tab = tabs()
    tab.drop("log.txt", LOG.encode())
    tab.ask("Who lights the lamp?")
    tab.answer()
    assert "already read" in tab.details()
    assert "already read" not in tab.page.locator("#status").inner_text(), "the cost is told once"
    for name in TABS:
        tab.page.get_by_role("tab", name=name).click()
        tab.page.get_by_role("tabpanel").filter(visible=True).first.wait_for()
        shown = tab.page.evaluate(SHOWN)
        assert "Search chats" in shown
        assert TECHNICAL.findall(shown) == [], name


def test_a_damaged_file_is_named_and_the_good_ones_stay(tabs, window):
    tab = tabs()
    tab.drop("good.txt", LOG.encode())
    tab.drop("broken.pdf", pdf(["One page of text."])[:200])
    told = tab.wait_for("broken.pdf is", "#ready-card .lc-bad")
    assert str(window.home) not in told
    tab.ask("Who lights the lamp?")
    tab.answer()
    tab.page.locator("#sources").get_by_text("good.txt").wait_for()
    other = tabs()
    other.drop("broken.pdf", pdf(["Another page."])[:200])
    other.ask("Who?")
    told = other.wait_for("broken.pdf")
    assert str(window.home) not in told
    other.page.wait_for_function("document.querySelector('#question textarea').value == 'Who?'")


def test_only_whole_words_are_marked_in_what_was_found():
    text = "For the harbour or the forest."
    found = SearchResult([Passage("d", "log.txt", 0, len(text), text, None, None, 1.0, {})], 1)
    html = library_table.hits(found, "or harbour", lambda _: text)
    assert re.findall(r"<mark>(.*?)</mark>", html.split("<blockquote>")[1]) == ["harbour"]
    html = library_table.hits(found, "or", lambda _: text)
    assert re.findall(r"<mark>(.*?)</mark>", html.split("<blockquote>")[1]) == ["or"], "there is nothing else"


def test_passages_without_the_words_come_last_below_a_line_that_says_so():
    texts = ("Ships sail at night.", "The harbour is closed.")
    found = SearchResult([Passage(t, f"{t[:4]}.txt", 0, len(t), t, None, None, 1.0, {}) for t in texts], 2)
    html = library_table.hits(found, "harbour", lambda text: text)
    assert html.index("1. The ") < html.index("Without these words") < html.index("2. Ship")
    html = library_table.hits(found, "lantern", lambda text: text)
    assert html.index("No passage has these words") < html.index("1. Ship")


def test_failed_files_fill_no_bar():
    files = [IncomingFile(f"/{i}.pdf", f"{i}.pdf", status="failed") for i in range(2)]
    assert 'max="2" value="0"' in library_table.queue(files)
    assert "lc-failing" in library_table.queue(files)


# Chats


def test_chats_stand_under_the_day_of_their_last_use():
    now = datetime.now()
    ages = {"now": 0, "before": 1, "this week": 5, "long ago": 40}
    chats = [Chat(t, t, (), {}, None, 0, (now - timedelta(days=d)).timestamp()) for t, d in ages.items()]
    html = chat_list(chats, "before", ["now"])
    assert re.findall("<h2>(.*?)</h2>", html) == ["Today", "Yesterday", "Last 7 days", "Older"]
    assert 'data-chat="before" aria-current="true"' in html
    assert "answering" in html.split("Yesterday")[0]
    assert chat_list([], None) == ""
    assert "<b>" not in found_chats([], "<b>")


def test_a_chat_is_found_by_its_words_and_opened_from_the_keyboard(tabs, window):
    chat = said(window.home, "Birds", "Which bird fishes here?", "The grey heron, at night.")
    said(window.home, "Boats", "Who sails?", "Nobody.")
    tab = tabs()
    keys, search = tab.page.keyboard, tab.page.locator("#chat-search input, #chat-search textarea")
    keys.press("Control+k")
    tab.page.wait_for_function("document.activeElement.closest('#chat-search')")
    keys.type("heron")
    found = tab.page.locator("#chats-found [data-chat]")
    found.get_by_text("The grey heron").wait_for()
    assert found.count() == 1
    assert not tab.page.locator("#chats").is_visible()
    keys.press("Enter")
    tab.wait_for("The grey heron", "#conversation")
    tab.page.wait_for_function("!document.querySelector('#chat-search :is(input, textarea)').value")
    tab.page.locator(f"#chats [data-chat='{chat}'][aria-current]").wait_for()
    search.fill("")
    tab.page.locator("#brand").click()
    keys.press("/")
    tab.page.wait_for_function("document.activeElement.closest('#question')")
    keys.type("a/b")
    assert tab.box.input_value() == "a/b"


def test_escape_closes_the_help_and_stops_an_answer(tabs):
    tab = tabs()
    keys = tab.page.locator("#keys details")
    keys.locator("summary").click()
    assert "find and open a chat" in keys.inner_text()
    tab.page.keyboard.press("Escape")
    assert keys.get_attribute("open") is None
    tab.drop("long.txt", b"The river is long, and so is this text about it.\n" * 1500)
    tab.ask("What is there?")
    tab.wait_for("Reading the full document: ")
    tab.page.keyboard.press("Escape")
    ended = tab.answer() + tab.page.locator("#status").inner_text()
    assert "Stopped" in ended


def test_the_sidebar_closes_on_a_phone_when_a_chat_is_chosen(tabs, window):
    chat = said(window.home, "Phones", "Who calls?", "Nobody calls.")
    tab = tabs(390)
    sidebar = tab.page.locator(".sidebar.open")
    sidebar.wait_for(state="detached")
    tab.page.get_by_role("button", name="Toggle Sidebar").click()
    sidebar.wait_for()
    tab.page.locator(f"#chats [data-chat='{chat}']").click()
    sidebar.wait_for(state="detached")
    tab.wait_for("Nobody calls.", "#conversation")


# Collections


def test_documents_are_put_into_a_collection_and_asked_as_one(tabs, window):
    with closing(Store(window.home)) as store:
        lease, annex = (add(store, f"The {name} of the flat. {LOG}", f"{name}.txt") for name in ("lease", "annex"))
    tab = tabs()
    page = tab.page
    page.get_by_role("tab", name="Library").click()
    for document in (lease, annex):
        page.locator(f".lc-pick[value='{document}']").check()
    page.get_by_role("button", name="Add to a collection").click()
    name = page.locator("#collection-name input")
    name.fill("The flat")
    name.press("Enter")
    page.locator("#collection-put").click()
    page.locator("#collection-said").get_by_text("The flat").wait_for()
    page.locator("#collection input").click()
    page.get_by_role("option", name="The flat (2)").click()
    page.wait_for_function("document.querySelectorAll('#documents tbody tr').length === 2")
    page.locator("#documents .lc-sign").get_by_text("The flat").first.wait_for()
    page.locator("#collection-ask").click()
    page.wait_for_function("document.querySelector('#scope input').value.includes('The flat')")
    tab.ask("Who lights the lamp?")
    tab.answer()
    page.wait_for_function("location.search.includes('chat=')")
    with closing(Store(window.home)) as store:
        chat = store.chats.get(page.url.partition("chat=")[2])
        assert store.collections.documents(chat.settings["collection"]) == [annex, lease]
    tab.page.reload()
    page.wait_for_function("document.querySelector('#scope input')?.value.includes('The flat')")
