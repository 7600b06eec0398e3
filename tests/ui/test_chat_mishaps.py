"""The chat page when things go wrong: what is deleted elsewhere, questions that fail, and very long chats."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from browser import Served, Tab, Watch, launched, save_saying_model, served
from stored_documents import add

from localctx.store.store import Store

pytestmark = pytest.mark.slow

WORDS = [f"{word} " for word in ("harbour", "keeper", "is", "Ann", "Marlow", "the", "of")]
LOG = "".join(f"On day {day} the keeper of the harbour saw {day * 7 % 13} ships.\n" for day in range(60))
LONG = "The river is long, and so is this text about it.\n" * 1500


@pytest.fixture(scope="module")
def window(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("window")
    model = save_saying_model(folder / "model", WORDS)
    flags = ("--model", model, "--max-tokens", 6, "--draft", 0, "--threads", 1)
    with served(folder / "home", *flags) as window:
        yield window


@pytest.fixture(scope="module")
def context() -> Iterator:
    with launched() as browser, browser.new_context(accept_downloads=True) as context:
        yield context


@pytest.fixture
def tabs(context, window) -> Iterator:
    """A function that opens a tab; nothing may go wrong in any, and gradio's own red box is never shown."""
    watch = Watch(window.origin)

    def tab(chat: str = "") -> Tab:
        url = window.url.replace("/?", f"/?chat={chat}&", 1) if chat else window.url
        return Tab(watch.over(context.new_page())).open(url)

    yield tab
    toasts = [text for page in context.pages for text in page.locator(".toast-body").all_inner_texts()]
    for page in context.pages:
        page.close()
    assert toasts == []
    assert watch.seen == []


@pytest.fixture
def store(window) -> Iterator[Store]:
    with closing(Store(window.home)) as store:
        yield store


def chat_of(tab: Tab) -> str:
    tab.page.wait_for_function("location.search.includes('chat=')")
    return tab.page.url.partition("chat=")[2]


def about(store: Store, text: str, *said: str) -> str:
    """A chat about a text of its own, with a question and an answer in turn."""
    chat, last = store.chats.create("The log", [add(store, text)[0]]).id, None
    for i, words in enumerate(said):
        last = store.chats.append(chat, last, "assistant" if i % 2 else "user", words).id
    return chat


# Deletion


def test_deleting_a_chat_is_explained_and_leaves_what_was_read(tabs):
    tab = tabs()
    tab.drop("log.txt", LOG.encode())
    tab.ask("Who saw ships?")
    tab.answer()
    tab.use_menu("Delete")
    assert "documents stay in the library" in tab.wait_for("Deleted “Who saw ships?”", "#undo-chat-line")
    tab.page.wait_for_function("!document.querySelector('#conversation [data-testid=bot]')")
    tab.drop("log.txt", LOG.encode())
    tab.ask("And who else?")
    tab.answer()
    assert tab.read_share() > 90


def test_a_chat_deleted_in_another_tab_is_told_and_the_question_stays(tabs, store):
    chat = about(store, "Herons fish here.", "Who fishes?", "Herons.")
    tab = tabs(chat)
    tab.wait_for("Herons.", "#conversation")
    store.remove_chat(chat)
    tab.box.fill("And at night?")
    tab.box.press("Enter")
    assert "Your question is still below" in tab.wait_for("This chat was deleted", "#notice")
    assert tab.box.input_value() == "And at night?"
    tab.box.press("Enter")
    tab.read_share()
    assert [d.name for d in store.chats.get(chat_of(tab)).documents] == ["Herons fish here."]


@pytest.mark.parametrize("how", ["rename", "export", "delete", "retry"])
def test_whatever_is_done_with_a_chat_that_is_gone_says_so(tabs, store, how):
    chat = about(store, "Storks fish too.", "Who fishes?", "Storks.")
    tab = tabs(chat)
    tab.wait_for("Storks.", "#conversation")
    store.remove_chat(chat)
    page = tab.page
    if how == "retry":
        page.get_by_label("Try again").click()
    elif how == "rename":
        tab.use_menu("Rename")
        page.get_by_label("Title").press("Enter")
    else:
        tab.use_menu({"export": "Export as JSON", "delete": "Delete"}[how])
    if how == "delete":
        page.wait_for_function("!document.querySelector('#conversation [data-testid=bot]')")
    else:
        tab.wait_for("This chat was deleted", "#notice")


def test_a_chat_whose_document_was_removed_says_so_and_invents_nothing(tabs, store):
    chat = about(store, "Terns fish too.", "Who fishes?", "Terns.")
    store.remove_document(store.chats.get(chat).documents[0].id)
    tab = tabs(chat)
    assert "Drop it here again" in tab.wait_for("Removed from the library: Terns fish too.", "#notice")
    tab.box.fill("And at night?")
    tab.box.press("Enter")
    tab.wait_for("removed from the library, and this chat has no other document")
    tab.page.wait_for_function("document.querySelector('#question textarea').value == 'And at night?'")
    assert len(store.chats.messages(chat)) == 2
    tab.page.locator("#go-on").click()
    tab.page.wait_for_function("!document.querySelector('#notice').innerText.trim()")
    tab.box.press("Enter")
    tab.read_share()


def test_a_chat_is_renamed_and_deleted_by_its_menu_while_another_is_open(tabs, store):
    opened = about(store, "Terns fish too.", "Who fishes?", "Terns.")
    other = about(store, "Coots do not.", "Who swims?", "Coots.")
    tab = tabs(opened)
    tab.wait_for("Terns.", "#conversation")
    tab.use_menu("Rename", f"[data-chat='{other}']")
    tab.page.get_by_label("Title").fill("Coots of the pond")
    tab.page.get_by_label("Title").press("Enter")
    tab.page.locator(f"#chats [data-chat='{other}']", has_text="Coots of the pond").wait_for()
    assert store.chats.get(other).title == "Coots of the pond"
    tab.use_menu("Delete", f"[data-chat='{other}']")
    tab.wait_for("Deleted “Coots of the pond”", "#undo-chat-line")
    assert "Terns." in tab.conversation.inner_text()
    assert chat_of(tab) == opened


def test_an_export_leaves_no_dead_button(tabs, store):
    chat = about(store, "Gulls fish too.", "Who fishes?", "Gulls.")
    about(store, "Ducks do not.", "Who fishes?", "Ducks.")
    tab = tabs(chat)
    tab.wait_for("Gulls.", "#conversation")
    page = tab.page
    with page.expect_download() as download:
        tab.use_menu("Export as Markdown")
    assert "Gulls." in Path(download.value.path()).read_text()
    page.locator("#chats [data-chat]").nth(0).click()
    tab.wait_for("Ducks.", "#conversation")
    assert not page.get_by_text("The file").is_visible()
    page.locator("#new-chat").click()
    page.locator("#chats [data-chat]").nth(1).click()
    tab.wait_for("Gulls.", "#conversation")
    assert not page.get_by_text("The file").is_visible()


# Questions


def test_a_question_is_on_screen_at_once_even_if_the_server_is_slow(tabs):
    tab = tabs()
    page = tab.page
    page.wait_for_timeout(1000)  # until the page's own events are over
    waiting, slow = [], threading.Event()
    slow.set()
    page.route("**/gradio_api/queue/join*", lambda route: waiting.append(route) if slow.is_set() else route.continue_())
    tab.box.fill("Who saw ships?")
    script = """() => new Promise(shown => {
        const start = performance.now(), box = document.querySelector('#question textarea')
        const look = () => document.querySelector('#conversation .lc-asked')?.innerText === 'Who saw ships?'
            ? shown(performance.now() - start) : performance.now() - start < 5000 ? setTimeout(look, 5) : shown(5000)
        box.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }))
        look()
    })"""
    assert page.evaluate(script) < 300
    slow.clear()
    for route in waiting:
        route.continue_()
    tab.box.press("Enter")
    tab.answer()
    assert page.locator("#conversation .lc-question").count() == 1


def test_a_question_stopped_while_its_document_is_read_can_be_tried_again(tabs, store):
    tab = tabs()
    tab.drop("long.txt", LONG.encode())
    tab.ask("What is there?")
    tab.wait_for("Reading the full document: ")
    tab.box.fill("my next question")
    tab.stop.click()
    assert "Stopped." in tab.answer()
    chat = chat_of(tab)
    store.chats.set_documents(chat, [add(store, "Rivers are long.")[0]])  # which is read at once
    tab.page.get_by_label("Try again").click()
    tab.read_share()
    assert [m.role for m in store.chats.messages(chat)] == ["user", "assistant"]
    assert tab.box.input_value() == "my next question"
    tab.page.get_by_label("Try again").click()
    tab.page.locator("#question .stop-button").wait_for(state="hidden")
    tab.read_share()
    assert tab.box.input_value() == "my next question"


def test_a_question_that_failed_waits_in_its_chat_until_the_model_is_there(context, window, tmp_path):
    model = save_saying_model(tmp_path / "model", WORDS)
    weights = (model / "model.safetensors").rename(tmp_path / "elsewhere")
    with served(tmp_path / "home", "--model", model, "--max-tokens", 6, "--threads", 1) as other:
        tab = Tab(context.new_page()).open(other.url)
        tab.drop("log.txt", LOG.encode())
        tab.ask("Who saw ships?")
        assert "Stopped." in tab.answer()
        assert "has no config.json with *.safetensors" in tab.status.inner_text()
        weights.rename(model / "model.safetensors")
        tab.page.get_by_label("Try again").click()
        tab.read_share()
        assert tab.page.locator("#conversation [data-testid=user]").count() == 1
        tab.page.close()


# The page


def test_the_browser_gets_the_manifest(tabs, context):
    tab = tabs()
    manifest = context.new_cdp_session(tab.page).send("Page.getAppManifest")
    assert manifest["errors"] == []
    assert '"localctx"' in manifest["data"]


def test_a_chat_of_five_hundred_messages_shows_and_reads_only_its_end(tabs, store):
    said = [f"{'Answer' if i % 2 else 'Question'} {i}." for i in range(500)]
    chat = about(store, "A long talk.", *said)
    tab = tabs()
    tab.page.goto(f"{tab.page.url.partition('?')[0]}?chat={chat}")
    tab.wait_for("Answer 499.", "#conversation")
    assert tab.page.locator("#conversation [data-testid=user]").count() < 20
    tab.ask("And now?")
    tab.read_share()  # this once all that was said is read
    tab.ask("And then?")
    tab.page.wait_for_function("document.querySelectorAll('.lc-cost').length > 1")
    assert tab.read_share() > 90
    tab.page.get_by_role("button", name="Show earlier messages").click()
    tab.wait_for("Question 400.", "#conversation")
    assert "Question 300." not in tab.conversation.inner_text()
