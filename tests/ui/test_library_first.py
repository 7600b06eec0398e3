"""The library: documents first, actions where documents are ticked, and hits that are seen and marked."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from browser import Served, Tab, Watch, save_saying_model, served
from stored_documents import add

from localctx.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.browser]

TEXT = "The weir was mended in spring. " * 40 + "The repair of the mill took a year."


@pytest.fixture(scope="module")
def window(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("library")
    model = save_saying_model(folder / "model", ["one ", "two "])
    with served(folder / "home", "--model", model, "--max-tokens", 4, "--threads", 1) as window:
        with closing(Store(window.home)) as store:
            add(store, TEXT, "A short text about ducks.")
        yield window


@pytest.fixture
def library(chromium, window) -> Iterator:
    """A function that opens the library at a width."""
    watch, context = Watch(window.origin), chromium.new_context()

    def opened(width: int) -> Tab:
        page = watch.over(context.new_page())
        page.set_viewport_size({"width": width, "height": 844})
        tab = Tab(page).open(window.url)
        page.get_by_role("tab", name="Library").click()
        page.locator("#documents tbody tr").first.wait_for()
        return tab

    yield opened
    context.close()
    assert watch.seen == []


@pytest.mark.parametrize("width", [1440, 1280, 390])
def test_every_column_is_in_view(library, width):
    page = library(width).page
    ends = page.locator("#documents tbody tr:first-child > *").evaluate_all(
        "all => all.map(e => [e.getBoundingClientRect().left, e.getBoundingClientRect().right])"
    )
    assert min(left for left, _ in ends) >= 0
    assert max(right for _, right in ends) <= width
    table = page.locator("#documents").evaluate("e => e.scrollWidth - e.clientWidth")
    assert table <= 0
    for word in ("Characters", "Read 1,500"):
        assert word not in page.locator("#documents").inner_text()


def test_actions_are_shown_while_documents_are_ticked(library):
    page = library(1280).page
    actions = page.locator("#library-actions")
    assert not actions.is_visible()
    page.locator("#documents .lc-pick").first.check()
    actions.get_by_role("button", name="Ask").wait_for()
    page.locator("#documents .lc-pick").first.uncheck()
    actions.wait_for(state="hidden")


def test_what_is_deleted_fades_at_once(library, window):
    with closing(Store(window.home)) as store:
        add(store, "A text that goes away.")
    page = library(1280).page
    row = page.locator("#documents tr", has_text="goes away")
    row.locator(".lc-pick").check()
    faded = "document.querySelector('#delete').click() ?? document.querySelectorAll('.lc-leaving').length"
    assert page.evaluate(faded) == 1
    row.wait_for(state="detached")


def test_a_hit_stays_in_view_and_only_the_words_are_marked(library):
    page = library(1280).page
    page.locator("#words textarea, #words input").fill("repair mill")
    page.locator("#words button").click()
    hit = page.locator("#hits .lc-open-source").first
    hit.wait_for()
    assert hit.bounding_box()["y"] < 844
    hit.click()
    page.locator("#viewer mark.lc-cited").first.wait_for()
    assert page.locator("#viewer mark.lc-cited").all_inner_texts() == ["repair", "mill"]
    assert 0 <= hit.bounding_box()["y"] < 844
