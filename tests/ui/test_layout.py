"""Nothing that somebody looks at or clicks moves away, and nothing lies over what was asked for."""

from collections.abc import Callable, Iterator

import pytest
from browser import Tab
from stored_documents import row
from window_in_process import opened, served_with_key

from localctx.ui.app import build

pytestmark = [pytest.mark.slow, pytest.mark.browser]

LEASE = "The landlord is Ann Marlow. The rent is EUR 600 per month. It is due on the first day of the month."
STATUS = """text => {
  const status = document.querySelector('#status'), card = document.querySelector('.lc-drop')
  const top = () => card.getBoundingClientRect().top
  const line = status.querySelector('.lc-status')
  line?.remove()
  const before = top(), shown = document.createElement('div')
  shown.className = 'lc-status'
  shown.textContent = text
  status.append(shown)
  return top() - before
}"""


@pytest.fixture(scope="module")
def window(tmp_path_factory, tiny_model) -> Iterator:
    with opened(tmp_path_factory.mktemp("home"), tiny_model) as window:
        with window.store() as store:
            for name in ("one.txt", "two.txt", "three.txt"):
                text = f"{name}: {LEASE}"
                store.documents.add(row(name, text), text, [])
        window.indexer.wake()
        yield window


@pytest.fixture(scope="module")
def address(window) -> Iterator[str]:
    with served_with_key(window) as address:
        yield address


@pytest.fixture
def tabs(chromium, address) -> Iterator[Callable[..., Tab]]:
    """A function that opens a tab of a width and a theme."""
    with chromium.new_context() as context:

        def tab(width: int = 1280, theme: str = "light") -> Tab:
            page = context.new_page()
            page.set_viewport_size({"width": width, "height": 844})
            return Tab(page).open(f"{address}&__theme={theme}")

        yield tab


def top(page, where: str) -> float:
    return page.locator(where).first.bounding_box()["y"]


def library(page) -> None:
    page.get_by_role("tab", name="Library").click()
    page.locator("#documents .lc-pick").first.wait_for()


def test_no_two_components_have_one_id(window):
    ids = [block.elem_id for block in build(window).blocks.values() if block.elem_id]
    assert sorted(ids) == sorted(set(ids))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_scrollbars_have_the_colours_of_the_theme(tabs, theme):
    page = tabs(theme=theme).page
    for where in ("html", "#conversation", "#viewer"):
        assert page.locator(where).evaluate("e => getComputedStyle(e).colorScheme") == theme


@pytest.mark.parametrize("width", [1280, 390])
def test_rows_stay_under_the_pointer_when_a_document_is_ticked(tabs, width):
    page = tabs(width).page
    library(page)
    before = top(page, "#documents tbody")
    assert not page.locator("#only").is_visible()
    page.locator("#documents .lc-pick").nth(0).check()
    page.get_by_label("Only in the selected documents").wait_for()
    assert top(page, "#documents tbody") == before
    page.locator("#documents .lc-pick").nth(1).check()
    page.locator("#selected").get_by_text("2 selected").wait_for()
    page.locator("#documents .lc-all").uncheck(force=True)


def test_what_limited_the_search_does_not_once_nothing_is_ticked(tabs):
    page = tabs().page
    library(page)
    box = page.locator("#documents .lc-pick").first
    box.check()
    page.get_by_label("Only in the selected documents").check()
    box.uncheck()
    page.locator("#words :is(input, textarea)").fill("landlord")
    page.locator("#words button").click()
    page.locator("#hits mark").first.wait_for()


def test_an_empty_search_says_nothing(tabs):
    page = tabs().page
    library(page)
    words = page.locator("#words :is(input, textarea)")
    words.fill("landlord")
    page.locator("#words button").click()
    page.locator("#hits mark").first.wait_for()
    words.fill(" ")
    page.locator("#words button").click()
    page.wait_for_function("document.querySelector('#hits').innerText.trim() === ''")


def test_the_columns_are_folded_once_the_table_is_filled_and_stay_for_a_mistake(tabs, window):
    tab = tabs()
    page = tab.page
    library(page)
    page.locator("#documents .lc-pick").first.check()
    columns = page.locator("#table-columns textarea")
    page.locator("#table-options button").first.click()
    columns.wait_for()
    page.locator("#table-make").click()
    tab.wait_for("the table has no column", "#summaries-progress")
    assert columns.is_visible()
    columns.fill("rent: How much is the rent?")
    page.locator("#table-make").click()
    tab.wait_for("1 of 1 documents done", "#summaries-progress")
    columns.wait_for(state="hidden")
    page.locator("#summaries-close").click()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_start_card_stays_in_its_place_while_the_model_is_loaded(tabs, width):
    tab = tabs(width)
    tab.wait_for("is ready")
    assert tab.page.evaluate(STATUS, "Loading the model ...") == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_the_question_box_keeps_its_height_when_a_file_is_dropped(tabs, width):
    tab = tabs(width)
    height = lambda: tab.page.locator("#question").bounding_box()["height"]  # noqa: E731
    before = height()
    tab.drop("lease.txt", LEASE.encode())
    tab.page.locator("#ready-card .lc-doc").wait_for()
    assert height() == pytest.approx(before, abs=1)
    assert tab.box.is_visible()
    gutter = tab.page.locator("#conversation").evaluate("e => getComputedStyle(e).scrollbarGutter")
    assert gutter.startswith("stable")


def test_sources_lie_over_the_conversation_of_a_phone_until_something_else_is_touched(tabs):
    page = tabs(390).page
    sources, conversation = page.locator("#chat-about > button"), page.locator("#conversation")
    tab_row = page.locator("#main-tabs > .tab-wrapper").bounding_box()
    page.wait_for_function("!document.querySelector('#chat-about > button.open')")
    assert top(page, "#chat-about > button") >= tab_row["y"] + tab_row["height"]
    before = conversation.bounding_box()
    sources.click()
    page.locator("#more-sources").wait_for()
    assert conversation.bounding_box() == before
    page.locator("#question textarea").click()
    page.locator("#more-sources").wait_for(state="hidden")


def test_sources_are_shown_where_there_is_room_and_folded_where_there_is_none(tabs):
    page = tabs(1280).page
    sources = page.locator("#more-sources")
    sources.wait_for()
    page.set_viewport_size({"width": 390, "height": 844})
    sources.wait_for(state="hidden")
    page.set_viewport_size({"width": 1280, "height": 844})
    sources.wait_for()
