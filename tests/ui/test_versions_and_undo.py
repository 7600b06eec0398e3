"""Versions of questions and answers at the messages, answers that are continued, and deletions that are undone."""

from collections.abc import Iterator
from contextlib import closing

import gradio as gr
import pytest
from browser import Served, Tab, Watch, launched, save_saying_model, served
from stored_documents import add
from window_checks import barriers
from window_in_process import opened

from localctx.store.store import Store
from localctx.ui.undo import RecentlyDeleted

pytestmark = [pytest.mark.slow, pytest.mark.browser]

WORDS = [f"{word} " for word in ("harbour", "keeper", "is", "Ann", "Marlow", "the", "of")]


@pytest.fixture(scope="module")
def serving(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("window")
    model = save_saying_model(folder / "model", WORDS)
    with served(folder / "home", "--model", model, "--max-tokens", 6, "--draft", 0, "--threads", 1) as serving:
        yield serving


@pytest.fixture(scope="module")
def chromium_context() -> Iterator:
    with launched() as browser, browser.new_context() as context:
        yield context


@pytest.fixture
def tabs(chromium_context, serving) -> Iterator:
    """A function that opens a tab; nothing may go wrong in any."""
    watch = Watch(serving.origin)

    def tab(chat: str = "") -> Tab:
        url = serving.url.replace("/?", f"/?chat={chat}&", 1) if chat else serving.url
        return Tab(watch.over(chromium_context.new_page())).open(url)

    yield tab
    for page in chromium_context.pages:
        page.close()
    assert watch.seen == []


@pytest.fixture
def store(serving) -> Iterator[Store]:
    with closing(Store(serving.home)) as store:
        yield store


def written(store: Store) -> str:
    """A chat whose first question has two versions, the second of them two answers."""
    chat = store.chats.create("The harbour", [add(store, "Herons fish here.")[0]]).id
    first = store.chats.append(chat, None, "user", "Who fishes?")
    store.chats.append(chat, first.id, "assistant", "Herons.")
    second = store.chats.edit(first, "Who else fishes?")
    store.chats.append(chat, second.id, "assistant", "Nobody.")
    store.chats.append(chat, second.id, "assistant", "Storks.")
    return chat


# Versions


def test_versions_are_chosen_at_the_message_with_mouse_and_keyboard(tabs, store):
    tab = tabs(written(store))
    tab.wait_for("Storks.", "#conversation")
    question = tab.page.get_by_role("group", name="Versions of this question")
    answer = tab.page.get_by_role("group", name="Versions of this answer")
    assert ["2/2" in group.inner_text() for group in (question, answer)] == [True, True]
    assert answer.get_by_role("button", name="Next version").is_disabled()
    answer.get_by_role("button", name="Previous version").click()
    tab.wait_for("Nobody.", "#conversation")
    tab.page.wait_for_function("document.activeElement.dataset.action?.startsWith('version')")  # the keyboard is there
    tab.page.keyboard.press("Enter")
    tab.wait_for("Storks.", "#conversation")
    question.get_by_role("button", name="Previous version").focus()
    tab.page.keyboard.press("Space")
    tab.wait_for("Herons.", "#conversation")
    assert "1/2" in question.inner_text()
    assert answer.count() == 0
    assert barriers(tab.page) == {}


def test_an_edited_question_is_another_version_and_a_draft_stays(tabs, store):
    chat = written(store)
    tab = tabs(chat)
    tab.wait_for("Storks.", "#conversation")
    tab.box.fill("a draft")
    tab.page.locator(".lc-question").hover()
    tab.page.get_by_label("Edit").click()
    tab.page.locator("#conversation textarea").fill("Who swims?")
    tab.page.locator(".lc-edit").get_by_role("button", name="Ask").click()
    tab.wait_for("Who swims?", "#conversation")
    tab.page.get_by_role("group", name="Versions of this question").get_by_text("3/3").wait_for()
    tab.answer()
    assert tab.box.input_value() == "a draft"
    tab.page.get_by_label("Try again").click()
    tab.page.get_by_role("group", name="Versions of this answer").get_by_text("2/2").wait_for()
    assert tab.box.input_value() == "a draft"
    assert [m.text for m in store.chats.messages(chat) if m.role == "user"] == ["Who swims?"]


# Answers that were cut


def test_a_cut_answer_is_continued_at_its_end(tabs, store):
    tab = tabs()
    tab.ask("Who keeps the harbour?")
    tab.answer()
    chat = store.chats.all()[0].id
    before = store.chats.messages(chat)[-1]
    assert before.stopped == "length"
    tab.box.fill("a draft")
    for _ in range(2):
        button = tab.page.get_by_role("button", name="Continue", exact=True)
        button.click()
        tab.stop.wait_for(state="visible")
        tab.answer()
        button.wait_for()
    answer = store.chats.messages(chat)[-1]
    assert answer.id == before.id
    assert answer.text.startswith(before.text)
    assert len(answer.text.split()) == 3 * len(before.text.split())
    assert answer.text.strip() in " ".join(tab.conversation.inner_text().split())
    assert tab.box.input_value() == "a draft"
    assert tab.page.locator("#conversation [data-testid=user]").count() == 1


# Deletions


def test_a_deleted_chat_comes_back(tabs, store):
    chat = written(store)
    tab = tabs(chat)
    tab.wait_for("Storks.", "#conversation")
    tab.use_menu("Delete")
    assert "Its documents stay" in tab.wait_for("Deleted “The harbour”", "#undo-chat-line")
    assert chat not in [c.id for c in store.chats.all()]
    tab.page.locator("#undo-chat").click()
    tab.wait_for("Storks.", "#conversation")
    tab.page.wait_for_function("chat => location.search.includes(chat)", arg=chat)
    tab.page.locator("#undo-chat").wait_for(state="hidden")
    assert len(store.chats.tree(chat)) == 5


def test_deleted_documents_come_back_at_once_or_from_the_list(tabs, store):
    names = ["Terns fish too.", "Ducks do not."]
    add(store, *names)
    page = (tab := tabs()).page
    page.get_by_role("tab", name="Library").click()
    for name in names:
        page.locator("#documents tr", has_text=name).locator(".lc-pick").check()
    page.locator("#delete").click()
    line = tab.wait_for("Deleted", "#undo-document-line")
    assert all(f"“{name}”" in line for name in names)
    page.wait_for_function("name => !document.querySelector('#documents').innerText.includes(name)", arg=names[0])
    page.locator("#undo-document").click()
    for name in names:
        tab.wait_for(name, "#documents")
    page.locator("#documents tr", has_text=names[1]).locator(".lc-pick").check()
    page.locator("#delete").click()
    tab.wait_for(f"Deleted “{names[1]}”", "#undo-document-line")
    page.reload()
    page.get_by_role("tab", name="Library").click()
    page.get_by_role("button", name="Recently deleted").click()
    page.get_by_label(names[1]).check()
    page.locator("#restore").click()
    tab.wait_for(f"Restored “{names[1]}”", "#restored")
    tab.wait_for(names[1], "#documents")
    assert store.deletions.all() == []


def test_what_was_chosen_to_be_restored_stays_chosen_when_the_list_is_shown_again(home, tiny_model):
    with opened(home, tiny_model) as window, window.store() as store:
        deleted = [store.delete("document", add(store, text)[0]).id for text in ("Terns fish.", "Ducks dive.")]
        listed = RecentlyDeleted(window)
        with gr.Blocks():
            listed.build()
        assert "value" not in listed.relisted([])
        assert "value" not in listed.relisted(deleted)
        store.deletions.restore(deleted[0])
        assert listed.relisted(deleted)["value"] == deleted[1:]
