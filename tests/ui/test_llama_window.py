"""The window over llama.cpp in a browser: a question about a document, a restart, and the pages beside the chat."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import Tab, Watch, served
from required_extras import needs_llama
from tiny_ggufs import write_tiny_gguf
from window_checks import barriers

TEXT = "".join(f"Lamp {i} of the harbour is lit by keeper {i * 37}.\n" for i in range(60))
QUESTION = "Who lights lamp 7?"

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_llama]


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf", "llama")


@pytest.fixture
def started(chromium, tiny_gguf, tmp_path):
    """A function that starts the window over the data folder of this test, as after a restart: a context manager that
    gives a tab of it."""
    flags = ("--engine", "llama.cpp", "--model", tiny_gguf, "--max-tokens", 12, "--threads", 1)

    @contextmanager
    def started() -> Iterator[Tab]:
        with served(tmp_path / "home", *flags) as window, chromium.new_context() as context:
            watch = Watch(window.origin)
            yield Tab(watch.over(context.new_page())).open(window.url)
            assert watch.seen == []

    return started


def go_to(tab: Tab, name: str) -> None:
    tab.page.get_by_role("tab", name=name).click()


def reuse(tab: Tab) -> float:
    """The share of the last prompt that was kept from before."""
    return tab.read_share() / 100


def test_an_answer_has_sources_and_what_was_read_is_reused_after_a_restart(started):
    with started() as tab:
        tab.drop("lamps.txt", TEXT.encode())
        tab.ask(QUESTION)
        tab.answer()
        assert reuse(tab) == 0
        assert "lamps.txt" in tab.page.locator(".lc-quote figcaption").first.inner_text()
        assert tab.page.locator(".lc-quote blockquote").first.inner_text().strip() in TEXT
        assert "llama.cpp does not tell what the model attended to" in tab.details()
        go_to(tab, "Settings")
        go_to(tab, "Advanced")
        told = tab.wait_for("The last answer in this chat", "#page-map")
        assert "llama.cpp does not tell it" in told
        assert "attention of the answer" not in told
        chat = tab.page.url.partition("chat=")[2]
    with started() as tab:
        tab.page.goto(f"{tab.page.url.partition('?')[0]}?chat={chat}")
        tab.wait_for(QUESTION, "#conversation")
        tab.ask("And lamp 8?")
        tab.page.wait_for_function("document.querySelectorAll('.lc-cost').length > 1")
        assert reuse(tab) > 0.9
        tab.page.goto(tab.page.url.partition("?")[0])
        tab.drop("lamps.txt", TEXT.encode())
        tab.ask("Which lamp is the last?")
        tab.answer()
        assert reuse(tab) > 0.9


def test_the_other_pages_offer_what_llama_cpp_has(started, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "lamps.txt").write_text(TEXT)
    with started() as tab:
        page = tab.page
        go_to(tab, "Settings")
        go_to(tab, "Advanced")
        table = tab.wait_for("longest context in memory", "#what-fits")
        assert "f16" in table
        assert "int2" not in table
        page.get_by_label("f16: F16 of llama.cpp").wait_for()
        offered = page.locator("#codec label").all_inner_texts()
        assert "f16: F16 of llama.cpp" in [label.strip() for label in offered]
        assert not any(label.startswith("int2") for label in offered)
        assert not page.locator("#gate").is_visible()
        page.get_by_label("int8: Q8_0 of llama.cpp", exact=True).check()
        tab.wait_for("Saved", "#memory-said")
        assert barriers(page) == {}

        go_to(tab, "Library")
        page.locator("#path textarea, #path input").fill(str(folder / "lamps.txt"))
        page.locator("#path button").click()
        page.locator("#documents tbody th").get_by_text("lamps.txt").wait_for()
        page.locator("#words textarea, #words input").fill("keeper of lamp 7")
        page.locator("#words button").click()
        assert "Lamp" in page.locator("#hits .lc-hit").first.inner_text()

        page.get_by_label("lamps.txt", exact=True).check()
        page.locator("#summarize").click()
        tab.wait_for("1 of 1 documents done", "#summaries-progress")
