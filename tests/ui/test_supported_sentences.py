"""Answers in a browser: numbers after the sentences that a passage says, which open its words; others dimmed."""

from collections.abc import Iterator
from contextlib import closing
from itertools import permutations

import pytest
from browser import Served, Tab, Watch, save_saying_model, served
from made_files import pdf
from window_checks import barriers, normal

from localctx.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.browser]

LEASE = [
    "Lease\n1. Parties. This lease is between Ann Marlow and Joe Tan. 2. Term. It\n"
    "begins on 1 May 2024. 3. Use. The flat is a dwelling.",
    "Lease\n4. Rent. The rent is EUR 600 per month, and is due on the third working\n"
    "day of each month. 5. Deposit. The deposit is EUR 1,200.",
]
SAID, INVENTED = "The rent is 600 euros per month.", "The moon is made of cheese."
WRONG = "The rent is 700 euros per month."
ANSWERS = [" ".join(order) + gap for order in permutations((SAID, INVENTED, WRONG)) for gap in ("", " ")]
# one token each: whichever of them the tiny model says, it says one sentence of the lease and two that are not there


@pytest.fixture(scope="module")
def window(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("window")
    model = save_saying_model(folder / "model", ANSWERS)
    with served(folder / "home", "--model", model, "--max-tokens", 1, "--draft", 0, "--threads", 1) as window:
        yield window


@pytest.fixture
def tab(chromium, window) -> Iterator[Tab]:
    watch, context = Watch(window.origin), chromium.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=window.origin)
    page = watch.over(context.new_page())
    yield Tab(page).open(window.url)
    context.close()
    assert watch.seen == []


@pytest.fixture
def asked(tab) -> Tab:
    """A tab that has asked about the lease."""
    tab.drop("lease.pdf", pdf(LEASE))
    tab.ask("How much is the rent?")
    tab.answer()
    tab.page.locator(".lc-number").wait_for()
    return tab


def opened_again(asked: Tab, scheme: str = "light"):
    """The chat in another page; a page that is left while gradio still asks something of the server complains."""
    page = asked.page.context.new_page()
    page.emulate_media(color_scheme=scheme)
    page.goto(asked.page.url)
    page.locator(".lc-number").wait_for()
    return page


def test_a_sentence_of_the_lease_has_a_number_and_the_others_are_dimmed(asked):
    page = asked.page
    assert page.locator(".lc-number").count() == 1
    dimmed = [normal(text) for text in page.locator(".lc-unsupported").all_inner_texts()]
    assert sorted(dimmed) == sorted(f"{text} (no passage says this)" for text in (INVENTED, WRONG))
    assert set(page.locator(".lc-unsupported").evaluate_all("all => all.map(e => e.title)")) == {"No passage says this"}
    assert "Dimmed: no passage says this." in page.locator(".lc-answer").inner_text()
    said, pale = (
        page.locator(where).first.evaluate("e => getComputedStyle(e).color")
        for where in (".lc-said", ".lc-unsupported")
    )
    assert said != pale


def test_a_number_opens_the_document_at_the_words_it_stands_for(asked, window):
    page, number = asked.page, asked.page.locator(".lc-number")
    document, start, end = (number.get_attribute(f"data-{name}") for name in ("document", "start", "end"))
    with closing(Store(window.home)) as store:
        assert "The rent is EUR 600 per month" in store.documents.text(document)[int(start) : int(end)]
    number.focus()
    page.keyboard.press("Enter")
    page.locator("#viewer").wait_for()
    page.wait_for_function("document.querySelector('#viewer-part').value === '2'")
    assert "lease.pdf" in page.locator("#viewer-name").inner_text()


def test_a_source_shows_whole_sentences_with_the_words_of_the_answer_marked(asked):
    quoted = asked.page.locator(".lc-quote")
    assert quoted.locator("blockquote").get_attribute("data-number") == "1"
    assert normal(quoted.locator("figcaption").inner_text()).startswith("lease.pdf · p. 2")
    shown = quoted.locator("blockquote").inner_text()
    assert "due on the third working day of each month." in shown  # in the PDF it is two lines
    assert quoted.locator("strong").all_inner_texts() == ["rent is EUR 600 per month"]
    assert "weight" not in quoted.inner_text()
    assert "characters" not in quoted.inner_text()
    places = [
        asked.page.locator(where).evaluate("e => ({ ...e.dataset })") for where in (".lc-quote button", ".lc-number")
    ]
    assert places[0] == places[1]


def test_what_is_copied_has_numbers_in_brackets_and_nothing_that_is_only_heard(asked):
    asked.page.locator(".lc-answer").get_by_label("Copy").click()
    copied = asked.page.evaluate("navigator.clipboard.readText()")
    assert f"{SAID} [1]" in copied
    assert "no passage" not in copied


def test_an_answer_that_was_stored_without_its_sentences_is_numbered_by_its_citations(asked, window):
    chat = asked.page.url.rpartition("chat=")[2]
    with closing(Store(window.home)) as store:
        message = store.chats.messages(chat)[-1]
        (source,) = [sentence["source"] for sentence in message.stats["sentences"] if sentence["source"]]
        stats = {name: value for name, value in message.stats.items() if name != "sentences"}
        store.chats.append(chat, message.parent, "assistant", SAID + " " + INVENTED, [source], stats, "eos")
    page = opened_again(asked)
    assert page.locator(".lc-unsupported").count() == 0, "it is not known what else was read"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_and_dimmed_sentences_are_no_barrier(asked, scheme):
    assert barriers(opened_again(asked, scheme)) == {}
