"""What the chat page shows belongs to the chat that is open: its draft, its sources, and nothing that is over."""

import os
import re
import signal
from contextlib import closing

import pytest
from browser import Served, Tab, save_saying_model, served
from stored_documents import add

from localctx.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.browser]

BROKEN = {"broken.pdf": b"%PDF-1.7 nothing", "empty.txt": b"", "photo.png": b"\x89PNG nothing"}
LONG = "The river is long, and so is this text about it.\n" * 1500


@pytest.fixture
def window(brief_window) -> Served:
    return brief_window


@pytest.fixture
def tab(brief_tab) -> Tab:
    return brief_tab


def chat_about(window: Served, text: str, question: str) -> str:
    with closing(Store(window.home)) as store:
        chat = store.chats.create(question, add(store, text)).id
        asked = store.chats.append(chat, None, "user", question).id
        store.chats.append(chat, asked, "assistant", f"Answer to {question}")
    return chat


def open_chat(tab: Tab, chat: str, question: str) -> None:
    tab.page.locator(f"#chats [data-chat='{chat}']").click()
    tab.wait_for(f"Answer to {question}", "#conversation")


def sources(tab: Tab) -> list[str]:
    return tab.page.locator("#sources li button").all_inner_texts()


def drop_broken(tab: Tab) -> None:
    for i, (name, data) in enumerate(BROKEN.items()):
        tab.drop(name, data)
        tab.page.locator("#ready-card .lc-doc-failed").nth(i).wait_for()


# Drafts and files that cannot be read


def test_new_chat_empties_a_new_chat_that_could_not_be_asked(tab):
    drop_broken(tab)
    tab.box.fill("What is in them?")
    tab.box.press("Enter")
    tab.wait_for("broken.pdf, empty.txt and photo.png cannot be read")
    tab.page.locator("#ready-card .lc-doc-failed").nth(2).wait_for()
    tab.page.locator("#new-chat").click()
    tab.page.wait_for_function("!document.querySelector('#question textarea').value", timeout=5000)
    tab.page.locator("#ready-card .lc-doc").first.wait_for(state="hidden")
    assert tab.page.locator("#question .thumbnail-item").count() == 0
    assert tab.page.locator(".lc-bad").filter(visible=True).count() == 0
    tab.page.reload()
    tab.box.wait_for()
    tab.page.wait_for_timeout(500)  # in which a draft would come
    assert tab.box.input_value() == ""


def test_the_reason_why_a_file_cannot_be_read_is_told_once(tab):
    drop_broken(tab)
    (reason,) = tab.page.locator("#ready-card .lc-bad").filter(has_text="broken.pdf").all_inner_texts()
    tab.box.fill("What is in them?")
    tab.box.press("Enter")
    tab.wait_for("cannot be read")
    tab.page.locator("#ready-card .lc-doc-failed").nth(2).wait_for()
    assert tab.page.locator("body").inner_text().count(reason) == 1
    tab.drop("good.txt", b"Herons fish here.")
    tab.page.locator("#ready-card .lc-doc").nth(3).wait_for()
    tab.page.locator("#ready-card .lc-doc-failed").nth(2).wait_for()
    tab.wait_for("Ready. Ask anything.", "#ready-card")
    tab.ask("Who fishes?")
    tab.answer()
    assert reason not in tab.page.locator("body").inner_text()
    assert "Skipped" not in tab.page.locator("body").inner_text()


def test_a_question_that_cannot_be_asked_comes_back_beside_what_was_entered_meanwhile(tab):
    drop_broken(tab)
    tab.ask("What is in them?")
    tab.page.keyboard.insert_text("Or in this?")
    tab.drop("good.txt", b"Herons fish here.")
    tab.wait_for("cannot be read")
    tab.page.locator("#ready-card .lc-doc").nth(3).wait_for()
    tab.wait_for("Ready. Ask anything.", "#ready-card")
    assert tab.page.locator("#question .thumbnail-item").count() == 4
    typed = re.findall(r"[^?\n]+\?", tab.box.input_value())
    assert sorted(typed) == ["Or in this?", "What is in them?"]


# Sources


def test_sources_are_those_of_the_open_chat(tab, window):
    deposit = chat_about(window, "The deposit is 900.", "How much?")
    invoices = chat_about(window, "Invoices are due in May.", "When?")
    tab.page.reload()
    for _ in range(2):
        open_chat(tab, deposit, "How much?")
        tab.wait_for("The deposit is 900.", "#sources")
        assert sources(tab) == ["The deposit is 900."]
        open_chat(tab, invoices, "When?")
        tab.wait_for("Invoices are due in May.", "#sources")
        tab.page.wait_for_timeout(500)
        assert sources(tab) == ["Invoices are due in May."]
    tab.page.locator("#new-chat").click()
    tab.page.locator("#conversation .lc-empty").wait_for()
    tab.page.wait_for_timeout(500)
    assert sources(tab) == []


def test_an_unticked_source_stays_listed_in_its_chat(tab, window):
    chat = chat_about(window, "Coots dive.", "Who dives?")
    tab.page.reload()
    open_chat(tab, chat, "Who dives?")
    box = tab.page.locator("#sources input")
    box.click()
    tab.page.wait_for_function("!document.querySelector('#sources input').checked")
    tab.page.wait_for_timeout(500)
    assert sources(tab) == ["Coots dive."]


def test_an_unticked_source_stays_listed_and_unticked_after_a_question(tab, window):
    chat = chat_about(window, "Coots dive.", "Who dives?")
    with closing(Store(window.home)) as store:
        other = add(store, "Herons wade.")[0]
        store.chats.set_documents(chat, [*[d.id for d in store.chats.get(chat).documents], other])
    tab.page.reload()
    open_chat(tab, chat, "Who dives?")
    tab.page.wait_for_function("document.querySelectorAll('#sources input:checked').length == 2")
    tab.page.locator("#sources input").first.click()
    tab.page.wait_for_function("document.querySelectorAll('#sources input:checked').length == 1")
    tab.ask("And who wades?")
    tab.answer()
    for _ in range(2):
        tab.page.wait_for_timeout(500)
        assert sources(tab) == ["Coots dive.", "Herons wade."]
        assert [box.is_checked() for box in tab.page.locator("#sources input").all()] == [False, True]
        tab.page.reload()
        tab.wait_for("And who wades?", "#conversation")
    tab.page.locator("#sources input").last.click()
    tab.wait_for("No document is ticked", "#sources")
    tab.box.fill("Who swims?")
    tab.box.press("Enter")
    tab.page.get_by_text("tick one in the sources").wait_for()
    assert tab.box.input_value() == "Who swims?"
    assert "Who swims?" not in tab.page.locator("#conversation").inner_text()


def test_a_dropped_file_is_listed_while_the_first_answer_is_made(tab):
    tab.drop("long.txt", LONG.encode())
    tab.ask("How long is it?")
    tab.stop.wait_for()
    while tab.stop.is_visible():
        shown = tab.page.locator("#chat-about").inner_text()
        if not tab.stop.is_visible():
            break
        assert "long.txt" in shown
        assert "Drop a document anywhere" not in shown
        if "Reading" in tab.status.inner_text():
            tab.stop.click()
            break
    tab.answer()


def test_the_fields_for_more_sources_close_with_their_chat(tab, window):
    chat = chat_about(window, "Terns dive.", "Who dives deep?")
    wide = chat_about(window, "Gulls dive.", "Who dives wide?")
    with closing(Store(window.home)) as store:
        store.chats.set(wide, {"library": True})
    tab.page.reload()
    open_chat(tab, chat, "Who dives deep?")
    fields = tab.page.locator("#add-sources")
    tab.page.locator("#more-sources").click()
    fields.wait_for()
    tab.page.locator("#new-chat").click()
    fields.wait_for(state="hidden")
    open_chat(tab, wide, "Who dives wide?")
    fields.wait_for()
    open_chat(tab, chat, "Who dives deep?")
    fields.wait_for(state="hidden")


# What is over


def test_a_killed_server_is_told_once_and_no_bar_stands(chromium, tmp_path):
    model = save_saying_model(tmp_path / "model", ["one ", "two "])
    with (
        served(tmp_path / "home", "--model", model, "--max-tokens", 4, "--threads", 1) as window,
        closing(chromium.new_page()) as page,
    ):
        tab = Tab(page).open(window.url)
        tab.drop("long.txt", LONG.encode())
        tab.ask("How long is it?")
        tab.page.locator("#status progress").wait_for()
        os.kill(window.process.pid, signal.SIGKILL)
        page.get_by_text("localctx has stopped").wait_for()
        page.wait_for_timeout(500)
        assert page.locator(".toast-body").filter(visible=True).count() == 0
        assert page.locator("progress, .lc-spin").filter(visible=True).count() == 0
        assert page.get_by_text("localctx has stopped").count() == 1


def test_the_work_on_an_answer_has_one_line_and_one_stop(tab):
    tab.drop("log.txt", LONG.encode()[:40_000])
    tab.ask("How long is it?")
    tab.page.locator("#status progress").wait_for()
    shown = tab.status.inner_text()
    assert shown.count("Reading") == 1
    assert tab.page.locator("button", has_text="Stop").filter(visible=True).count() == 0
    assert tab.stop.is_visible()
    tab.stop.click()
    tab.answer()
