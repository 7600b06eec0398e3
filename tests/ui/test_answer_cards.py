"""Answer cards in a browser: the answer first, its evidence once, three states, and one row of actions."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from browser import Served, Tab, Watch, save_saying_model, served
from clock import wait_until
from stored_documents import add
from window_checks import normal

from localctx.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.browser]

TEXT = (
    "Luggage. Each guest may bring no more than twelve kilograms. "
    "Deposit. The tenant pays a deposit of 1,840 euros before moving in. "
    "Furniture. There is a vacuum cleaner Henry in the hall. "
    "Repairs. The landlord keeps the roof in good order, and the tenant keeps the flat clean."
)
NOT_SAID = "The document does not say."


@pytest.fixture(scope="module")
def window(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("cards")
    words = [f"{word} " for word in ("harbour", "keeper", "is", "Ann")]
    model = save_saying_model(folder / "model", words)
    with served(folder / "home", "--model", model, "--max-tokens", 8, "--threads", 1) as window:
        yield window


@pytest.fixture
def context(chromium) -> Iterator:
    with chromium.new_context() as context:
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield context


@pytest.fixture
def opened(context, window):
    """A function that stores a chat of these messages and opens it."""
    watch = Watch(window.origin)

    def open_chat(
        *messages: tuple[str, str, list[dict[str, Any]], dict[str, Any], str], width: int = 1280, text: str = TEXT
    ) -> Tab:
        with closing(Store(window.home)) as store:
            chat, last = store.chats.create("Cards", [add(store, text)[0]]).id, None
            for question, answer, cited, more, stopped in messages:
                last = store.chats.append(chat, last, "user", question).id
                if answer:
                    last = store.chats.append(chat, last, "assistant", answer, cited, _stats(**more), stopped).id
        page = watch.over(context.new_page())
        page.set_viewport_size({"width": width, "height": 844})
        tab = Tab(page).open(window.url.replace("/?", f"/?chat={chat}&", 1))
        tab.wait_for(messages[-1][0], "#conversation")
        return tab

    yield open_chat
    for page in context.pages:
        page.close()
    assert watch.seen == []


def _stats(**more: Any) -> dict[str, Any]:
    tokens = {"prompt": 900, "reused": 855, "prefilled": 45, "generated": 20, "longest": 20}
    kv = {"window": 4096, "codec": "int8", "keeper": "full", "evicted": []}
    return {"mode": "full", "tokens": tokens, "seconds": {"first_token": 2.0, "decode": 1.0}, "kv": kv, **more}


def cited(window: Served, quote: str, source: str = "passage") -> dict[str, Any]:
    with closing(Store(window.home)) as store:
        document, name = add(store, TEXT)[0], TEXT[:20]
    start = TEXT.index(quote)
    place = {"document": document, "name": name, "page": "2", "heading": None, "start": start}
    return place | {"end": start + len(quote), "quote": quote, "source": source, "weight": 1.0}


def supported(answer: str, part: str, number: int, source: dict[str, Any]) -> dict[str, Any]:
    start = answer.index(part)
    return {"start": start, "end": start + len(part), "support": "supported", "number": number, "source": source}


def unsupported(answer: str) -> dict[str, Any]:
    return {"start": 0, "end": len(answer), "support": "unsupported", "number": None, "source": None}


# The answer and its evidence


def test_a_fragment_is_shown_within_its_whole_sentence_with_its_words_bold(opened, window):
    source = cited(window, "1,840 euros", "quote")
    sentences = [supported("1,840 euros", "1,840 euros", 1, source)]
    tab = opened(("How much is it?", "1,840 euros", [source], {"mode": "retrieve", "sentences": sentences}, "eos"))
    card = tab.page.locator(".lc-answer")
    assert card.locator("blockquote").inner_text() == "The tenant pays a deposit of 1,840 euros before moving in."
    assert card.locator("strong").all_inner_texts() == ["1,840 euros"]
    assert card.locator(".lc-number").count() == 0, "a fragment has no number of its own"
    assert card.inner_text().count("1,840 euros") == 1
    assert card.locator(".lc-open-source").count() == 1, "the same source is shown once"
    card.locator(".lc-open-source").click()
    marked = tab.page.locator("#viewer mark.lc-cited")
    marked.wait_for()
    assert marked.inner_text().strip() == "The tenant pays a deposit of 1,840 euros before moving in."


def test_the_answer_comes_first_and_below_it_what_it_rests_on(opened, window):
    said = "You pay it before you move in."
    source = cited(window, "The tenant pays a deposit of 1,840 euros before moving in.")
    tab = opened(("When?", said, [source], {"sentences": [supported(said, said, 1, source)]}, "eos"))
    card = tab.page.locator(".lc-answer")
    answer, quote = card.locator(".lc-said").bounding_box(), card.locator("blockquote").bounding_box()
    assert answer["y"] < quote["y"]
    size = "e => [getComputedStyle(e).fontSize, getComputedStyle(e).fontWeight]"
    assert card.locator(".lc-said").evaluate(size) == ["17px", "600"]
    rule = card.locator(".lc-quote").evaluate("e => getComputedStyle(e).borderLeftWidth")
    assert (rule, normal(card.locator(".lc-open-source").inner_text())[-7:]) == ("3px", "· p. 2 ↗"[-7:])


def test_a_computed_answer_comes_first_and_its_query_opens_below_the_rows(opened, window):
    text = "\n\n".join(f"Invoice: A{n}; Paid: no" for n in range(2, 12))
    with closing(Store(window.home)) as store:
        document, name = add(store, text)[0], text[:20]
    cited_rows = []
    for n, line in enumerate(text.split("\n\n"), 2):
        start = text.index(line)
        place = {"document": document, "name": name, "page": f"row {n}", "heading": "Invoices", "start": start}
        cited_rows.append(place | {"end": start + len(line), "quote": line, "source": "passage", "weight": 1.0})
    query = "SELECT COUNT(*) FROM t WHERE \"Paid\" = 'no'"
    stats = {"mode": "table", "sentences": [], "query": query, "rows": 37}
    tab = opened(("How many are not paid?", "37 of 200 rows.", cited_rows, stats, "eos"), text=text)
    card = tab.page.locator(".lc-answer")
    assert card.inner_text().startswith("37 of 200 rows.")
    assert "SELECT" not in card.inner_text()
    places = card.locator(".lc-places")
    assert "Invoices: rows 3, 4, 5, 6, 7, 8, 9, 10" in normal(places.inner_text())
    assert "and 28 more" in places.inner_text()
    card.locator(".lc-query summary").click()
    assert card.locator(".lc-query code").inner_text() == query
    places.get_by_role("button", name="row 4, Invoices").click()
    marked = tab.page.locator("#viewer mark.lc-cited")
    marked.wait_for()
    assert marked.inner_text().strip() == "Invoice: A4; Paid: no"


def test_markdown_is_set_and_markup_and_links_are_not(opened):
    said = "## Costs\n\n| What | Euros |\n|---|---|\n| Rent | 920 |\n\n- **one**\n- `two`\n\n<b>x</b> [a](http://a.example)"
    tab = opened(("Costs?", said, [], {}, "eos"))
    card = tab.page.locator(".lc-said")
    for element, text in (("h2", "Costs"), ("td", "920"), ("li strong", "one"), ("li code", "two")):
        assert text in card.locator(element).all_inner_texts()
    assert card.locator("a, b").count() == 0
    assert "<b>x</b> [a](http://a.example)" in card.inner_text()


# Three states


def test_one_small_word_is_no_answer_but_a_closest_passage(opened, window):
    source = cited(window, "no", "quote")
    tab = opened(("May I keep pets?", "no", [source], {"mode": "retrieve", "sentences": []}, "eos"))
    card = tab.page.locator(".lc-answer.lc-unsure")
    shown = card.inner_text()
    assert shown.startswith("I am not sure.")
    assert "The closest passage:" in shown
    assert card.locator("blockquote").inner_text() == "Each guest may bring no more than twelve kilograms."


def test_what_no_passage_says_is_told_apart(opened):
    said = "The flat was built in 1987."
    tab = opened(("When was it built?", said, [], {"sentences": [unsupported(said)]}, "eos"))
    shown = tab.page.locator(".lc-answer.lc-unsure").inner_text()
    assert shown.startswith("I am not sure.")
    assert said in shown


def test_what_is_not_there_is_said_before_the_closest_passage(opened, window):
    near = cited(window, "The landlord keeps the roof in good order, and the tenant keeps the flat clean.")
    more = {"mode": "retrieve", "sentences": [], "nearest": near, "asked": {"documents": {"": "lease.pdf"}}}
    tab = opened(("Who is the plumber?", NOT_SAID, [], more, "unanswered"))
    card = tab.page.locator(".lc-answer.lc-missing")
    assert card.inner_text().startswith("I found no clear answer in lease.pdf.")
    assert NOT_SAID not in card.inner_text()
    assert card.inner_text().index("I found no clear answer in ") < card.inner_text().index("The closest passage:")
    assert "keeps the roof" in card.locator("blockquote").inner_text()
    card.get_by_role("button", name="Search the whole text").click()
    tab.page.get_by_role("group", name="Versions of this answer").get_by_text("2/2").wait_for()


def test_the_states_are_told_apart_without_colour(opened, window):
    source = cited(window, "1,840 euros", "quote")
    tab = opened(
        ("How much?", "1,840 euros", [source], {"mode": "retrieve", "sentences": []}, "eos"),
        ("Who?", NOT_SAID, [], {"sentences": []}, "unanswered"),
        ("When?", "In 1987.", [], {"sentences": [unsupported("In 1987.")]}, "eos"),
    )
    look = "e => { const s = getComputedStyle(e); return s.borderTopStyle + s.backgroundColor }"
    looks = tab.page.locator(".lc-answer").evaluate_all(f"all => all.map({look})")
    assert len(set(looks)) == 3


# Actions


def test_one_row_of_actions_has_copy_retry_and_the_details(opened, window):
    said = "You pay it before you move in. The roof is the landlord's."
    source = cited(window, "The tenant pays a deposit of 1,840 euros before moving in.")
    sentences = [supported(said, "You pay it before you move in.", 1, source)]
    tab = opened(("When?", said, [source], {"sentences": sentences}, "eos"))
    row = tab.page.locator(".lc-answer .lc-actions")
    assert row.count() == 1
    sizes = row.locator("button, summary").evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
    assert min(sizes) >= 28
    row.get_by_label("Copy").click()
    copied = tab.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("You pay it before you move in. [1] The roof")
    assert "[1] “The tenant pays a deposit of 1,840 euros before moving in.” (" in copied
    assert not row.locator(".lc-cost").is_visible()
    row.get_by_label("Details").click()
    assert "95 % already read" in row.locator(".lc-cost").inner_text()


def test_the_details_say_how_much_of_the_document_was_seen(opened):
    kv = {"window": 4096, "codec": "int8", "keeper": "full", "evicted": [{"start": 0, "stop": 450, "kept": 0.0}]}
    tab = opened(("What?", "Nothing much is said.", [], {"kv": kv}, "eos"))
    tab.page.get_by_label("Details").click()
    assert "It saw 50 % of the text" in tab.page.locator(".lc-cost").inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_question_is_edited_as_wide_as_the_conversation(opened, width):
    long = "Which of the two tenancies begins first, " + "and what does each of them say about the repairs? " * 3
    tab = opened((long.strip(), "The first.", [], {}, "eos"), width=width)
    tab.page.locator(".lc-question").hover()
    tab.page.get_by_label("Edit").click()
    box = tab.page.locator("#conversation textarea")
    assert box.bounding_box()["width"] > 0.85 * tab.page.locator("#said").bounding_box()["width"]
    assert box.evaluate("e => e.scrollTop") == 0
    tab.page.keyboard.press("Escape")
    assert box.count() == 0


# Questions


def test_a_stopped_question_stays_and_the_next_one_is_no_version_of_it(opened, window):
    tab = opened(("What was stopped?", "", [], {}, ""))
    assert "Stopped." in tab.conversation.inner_text()
    assert tab.page.get_by_role("button", name="Try again").inner_text() == "Try again"
    tab.ask("And now?")
    shown = tab.answer()
    assert "What was stopped?" in shown
    assert "And now?" in shown
    assert tab.page.get_by_role("group", name="Versions of this question").count() == 0


def test_a_new_question_comes_into_view_wherever_one_was_reading(opened):
    many = [(f"Question {i}?", "A long answer. " * 40, [], {}, "eos") for i in range(8)]
    tab = opened(*many)
    tab.conversation.evaluate("e => e.scrollTo(0, 0)")
    tab.conversation.dispatch_event("wheel")
    tab.ask("What is the newest?")
    tab.answer()
    newest = tab.page.locator(".lc-question").last
    assert "newest" in newest.inner_text()
    view, place = tab.conversation.bounding_box(), newest.bounding_box()
    assert view["y"] <= place["y"] < view["y"] + view["height"]


def test_asking_every_passage_shows_its_work_and_its_answer_where_the_question_is(opened, window):
    many = [(f"Question {i}?", "A long answer. " * 40, [], {}, "eos") for i in range(6)]
    asked = ("Who is the plumber?", NOT_SAID, [], {"mode": "retrieve", "sentences": []}, "unanswered")
    tab = opened(*many, asked, text=TEXT * 200)  # so many passages that the work is seen however quick the machine is
    tab.conversation.dispatch_event("wheel")  # whoever scrolls by hand is not followed
    tab.page.get_by_role("button", name="Search the whole text").click()
    tab.wait_for("Asking every passage", "#conversation")
    assert tab.page.locator("#conversation .lc-status").last.evaluate(_IN_VIEW), "the work is shown in sight"
    tab.stop.click()
    tab.wait_for("Stopped after", "#conversation")
    tab.page.get_by_text("2/2").wait_for()
    assert tab.page.locator(".lc-answer").last.evaluate(_IN_VIEW)
    assert not tab.stop.is_visible()


_IN_VIEW = """element => {
    const view = document.querySelector('#conversation').getBoundingClientRect()
    const place = element.getBoundingClientRect()
    return view.top <= place.top && place.top < view.bottom
}"""


_SMALL = """() => [...document.querySelectorAll('button, summary, textarea')].filter(e => {
    const box = e.getBoundingClientRect(), at = [box.x + box.width / 2, box.y + box.height / 2]
    const around = e.matches('.lc-number') ? 2 * parseFloat(getComputedStyle(e, '::after').inset) : 0
    return e.contains(document.elementFromPoint(...at)) && Math.min(box.width, box.height) - around < 40
}).map(e => `${e.innerText || e.ariaLabel || e.className} ${e.offsetWidth} by ${e.offsetHeight}`)"""


def test_on_a_phone_fingers_hit_everything_and_the_question_stays_in_reach(opened, window):
    said = "You pay it before you move in. The roof is the landlord's."
    source = cited(window, "The tenant pays a deposit of 1,840 euros before moving in.")
    sentences = [supported(said, "You pay it before you move in.", 1, source)]
    tab = opened(("When?", said, [source], {"sentences": sentences}, "eos"), width=390)
    wait_until(lambda: tab.page.evaluate(_SMALL) == [], "large enough for fingers")  # a chat's title comes last
    tab.page.locator("#chat-about > button").click()
    tab.page.locator("#sources li").wait_for()
    box = tab.box.bounding_box()
    assert box["y"] + box["height"] <= 844
    wide = "document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight"
    assert tab.page.evaluate(wide)
