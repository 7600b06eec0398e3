"""What is typed or attached is never lost: it survives another chat, a reload, and a server that was killed."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from browser import Served, Tab
from playwright.sync_api import Route
from stored_documents import add

from localctx.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.browser]

DRAFT = "Which of the two is cheaper, and"


@pytest.fixture
def window(brief_window) -> Served:
    return brief_window


@pytest.fixture
def tab(brief_tab) -> Tab:
    return brief_tab


def wait_for_draft(tab: Tab, text: str) -> None:
    tab.page.wait_for_function("text => document.querySelector('#question textarea')?.value === text", arg=text)


def test_a_file_dropped_right_after_new_chat_belongs_to_the_new_chat(tab, window):
    tab.box.fill("Who fishes?")
    tab.page.locator("#new-chat").click()
    tab.drop("late.pdf", b"%PDF-1.7 nothing")
    tab.page.locator("#ready-card .lc-doc-failed").wait_for()
    assert tab.page.locator("#question .thumbnail-item").count() == 1


@pytest.mark.parametrize("uploaded", ["before", "after"])
def test_a_file_dropped_before_the_new_chat_is_shown_stays(tab, window, uploaded):
    """Its upload ends before or after the server's answer to the click."""
    with closing(Store(window.home)) as store:
        chat = store.chats.create("Herons", [add(store, "Herons fish here.")[0]]).id
        store.chats.append(chat, None, "user", "Who fishes?")
    tab.page.reload()
    tab.page.locator(f"#chats [data-chat='{chat}']").click()
    tab.wait_for("Who fishes?", "#conversation")
    slow = re.compile("queue/join|run/predict" if uploaded == "before" else "/upload")
    held, over = list[Route](), threading.Event()
    tab.page.route(slow, lambda route: route.continue_() if over.is_set() else held.append(route))
    tab.page.locator("#new-chat").click()
    tab.start_drop("late.pdf", b"%PDF-1.7 nothing")
    while not held:
        tab.page.wait_for_timeout(20)
    if uploaded == "before":
        tab.page.locator("#question .thumbnail-item").wait_for(state="attached")
    else:
        tab.page.locator(".lc-empty").wait_for(state="attached")
    over.set()
    for route in held:
        route.continue_()
    tab.page.locator("#ready-card .lc-doc-failed").wait_for()
    assert tab.page.locator("#question .thumbnail-item").count() == 1


def test_a_new_chat_is_empty_and_each_chat_keeps_its_draft(tab, window):
    with closing(Store(window.home)) as store:
        chat = store.chats.create("Herons", [add(store, "Herons fish here.")[0]]).id
        asked = store.chats.append(chat, None, "user", "Who fishes?").id
        store.chats.append(chat, asked, "assistant", "Herons.")
    tab.box.fill(DRAFT)
    tab.drop("broken.pdf", b"%PDF-1.7 nothing")
    tab.page.locator("#ready-card .lc-doc-failed").wait_for()
    tab.page.reload()
    tab.page.locator(f"#chats [data-chat='{chat}']").click()
    tab.wait_for("Herons.", "#conversation")
    wait_for_draft(tab, "")
    assert tab.page.locator("#question .thumbnail-item").count() == 0
    tab.box.fill("And at night?")
    tab.page.locator("#new-chat").click()
    wait_for_draft(tab, DRAFT)
    tab.page.locator(f"#chats [data-chat='{chat}']").click()
    wait_for_draft(tab, "And at night?")


def test_a_draft_and_its_file_survive_a_reload(tab):
    tab.drop("lease.txt", b"The rent is 940 euros a month, to be paid in advance.")
    tab.page.locator("#ready-card .lc-doc").wait_for()
    tab.box.fill(DRAFT)
    tab.page.reload()
    wait_for_draft(tab, DRAFT)
    tab.page.locator("#ready-card .lc-doc").get_by_text("lease.txt").wait_for()
    tab.box.press("Enter")
    tab.answer()
    tab.page.locator("#sources").get_by_text("lease.txt").wait_for()


def test_what_was_asked_is_no_draft_any_more(tab):
    tab.drop("herons.txt", b"Herons fish here.")
    tab.ask("Who fishes?")
    tab.answer()
    tab.page.locator("#new-chat").click()
    tab.page.locator("#conversation .lc-empty").wait_for()
    tab.page.wait_for_timeout(500)  # in which a draft would come
    assert tab.box.input_value() == ""
    assert tab.page.locator("#question .thumbnail-item").count() == 0
    tab.page.locator("#chats [data-chat]").first.click()
    tab.page.wait_for_function("location.search.includes('chat=')")
    tab.page.reload()
    tab.wait_for("Who fishes?", "#conversation")
    wait_for_draft(tab, "")


@pytest.fixture
def start(window, tmp_path) -> Iterator[Callable]:
    """Starts a server of its own on a port; returns it and its address. All servers are killed at the end."""
    model, started = str(window.home.parent / "model"), list[subprocess.Popen]()
    command = [sys.executable, "-m", "localctx", "ui", "--no-browser", "--model", model, "--max-tokens", "4", "--port"]
    environment = {**os.environ, "LOCALCTX_HOME": str(tmp_path / "home"), "LOCALCTX_EMBEDDER": "none"}

    def start(port: str) -> tuple[subprocess.Popen, str]:
        started.append(subprocess.Popen([*command, port], env=environment, stdout=subprocess.PIPE, text=True))
        return started[-1], started[-1].stdout.readline().split()[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def restarted(start: Callable, process: subprocess.Popen, url: str) -> str:
    """Kill the server and start another one on the same port; returns its address."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    return start(url.partition("/?")[0].rpartition(":")[2])[1]


def test_a_draft_survives_a_killed_server(chromium, start):
    process, url = start("0")
    with closing(chromium.new_page()) as page:
        tab = Tab(page).open(url)
        tab.box.fill(DRAFT)
        page.wait_for_timeout(300)
        tab.open(restarted(start, process, url))
        wait_for_draft(tab, DRAFT)


@pytest.mark.parametrize("earlier", [[], ["Who fishes?"]])
def test_a_question_sent_to_a_killed_server_is_back_in_the_box(chromium, start, earlier):
    process, url = start("0")
    with closing(chromium.new_page()) as page:
        tab = Tab(page).open(url)
        for question in earlier:
            tab.ask(question)
            tab.answer()
            page.wait_for_function("location.search.includes('chat=')")
        page.wait_for_timeout(1500)  # in which gradio connects
        process.send_signal(signal.SIGKILL)
        page.wait_for_timeout(1500)  # in which gradio notices, and sends nothing more
        tab.box.fill(DRAFT)
        tab.box.press("Enter")
        with page.expect_navigation():  # gradio loads the page again once the server is back
            restarted(start, process, url)
        wait_for_draft(tab, DRAFT)
        for question in earlier:
            tab.wait_for(question, "#conversation")
        tab.page.locator("#question .submit-button").click()
        tab.wait_for(DRAFT, "#conversation")
        tab.answer()
