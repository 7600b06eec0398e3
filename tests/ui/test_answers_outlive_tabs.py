"""Answers that go on when their tab is closed or reloaded, and every tab that shows the chat with them."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from browser import Served, Tab, Watch, save_saying_model, served
from clock import wait_until
from window_in_process import served_in_process

from localctx.engine.events import Note, Token
from localctx.errors import ChatError, UsageError
from localctx.store.store import Store
from localctx.ui.answers.conversation import StreamingAnswer
from localctx.ui.chat.answer_updates import redraw_interval
from localctx.ui.chat.asking import AnswerStarter
from localctx.ui.chat.chat_views import ChatViews
from localctx.ui.chat.shown_chat import ShownChat
from localctx.ui.job_events import REDRAW_INTERVAL
from localctx.ui.running.running_answers import RunningAnswer, RunningAnswers, TypedQuestion

pytestmark = [pytest.mark.slow, pytest.mark.browser]

WORDS = [f"{word} " for word in ("harbour", "keeper", "is", "Ann", "Marlow", "the", "of")]
LONG = b"The river is long, and so is this text about it.\n" * 1500


@pytest.fixture(scope="module")
def serving(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("window")
    model = save_saying_model(folder / "model", WORDS)
    flags = ("--model", model, "--max-tokens", 100_000, "--draft", 0, "--threads", 1, "--together", 2)
    with served(folder / "home", *flags) as serving:
        yield serving


@pytest.fixture
def tabs(chromium, serving) -> Iterator:
    """A function that opens a tab, of another browser if it is to; nothing may go wrong in any."""
    watch, contexts = Watch(serving.origin), [chromium.new_context()]

    def tab(chat: str = "", elsewhere: bool = False) -> Tab:
        if elsewhere:
            contexts.append(chromium.new_context())
        url = serving.url.replace("/?", f"/?chat={chat}&", 1) if chat else serving.url
        return Tab(watch.over(contexts[-1].new_page())).open(url)

    yield tab
    for context in contexts:
        context.close()
    assert watch.seen == []


def chat_of(tab: Tab) -> str:
    tab.page.wait_for_function("location.search.includes('chat=')")
    return tab.page.url.partition("chat=")[2].partition("&")[0]


def answers(serving: Served, chat: str) -> list[str]:
    with closing(Store(serving.home)) as store:
        return [m.stopped for m in store.chats.messages(chat) if m.role == "assistant"]


def said(tab: Tab) -> int:
    """How many words of the answer are shown."""
    return len(tab.page.locator("#conversation [data-testid=bot]").first.inner_text().split())


def wait_for_words(tab: Tab, count: int) -> None:
    tab.page.wait_for_function(
        """count => {
            const answer = document.querySelector('#conversation [data-testid=bot]')?.innerText || ''
            return answer.split(/\\s+/).length > count }""",
        arg=count,
    )


def test_an_answer_goes_on_when_its_tab_is_closed_and_is_shown_in_another_browser(tabs, serving):
    first = tabs()
    first.ask("Who keeps the harbour?")
    wait_for_words(first, 10)
    chat, shown = chat_of(first), said(first)
    first.page.close()
    second = tabs(chat, elsewhere=True)
    wait_for_words(second, shown)
    assert second.page.locator("#chats small", has_text="answering").count() == 1
    second.stop.click()
    second.answer()
    assert answers(serving, chat) == ["cancelled"]
    second.page.wait_for_function("!document.querySelector('#chats').innerText.includes('answering')")


def test_a_reload_in_the_middle_of_an_answer_or_of_reading_changes_nothing(tabs, serving):
    tab = tabs()
    tab.drop("long.txt", LONG)
    tab.ask("What is there?")
    tab.wait_for("Reading")
    chat = chat_of(tab)
    tab.page.reload()
    tab.wait_for("Reading")
    assert "What is there?" in tab.conversation.inner_text()
    tab.box.fill("my next question")
    tab.stop.click()
    tab.answer()
    tab.wait_for("Stopped.", "#conversation")
    assert answers(serving, chat) == []
    assert tab.box.input_value() == "my next question"
    tab.page.get_by_label("Try again").wait_for()


def test_two_tabs_on_one_chat_show_the_same(tabs, serving):
    one = tabs()
    one.ask("First?")
    wait_for_words(one, 5)
    one.stop.click()
    one.answer()
    chat = chat_of(one)
    two = tabs(chat)
    two.wait_for("First?", "#conversation")
    two.box.fill("a draft of the second tab")
    one.ask("Second?")
    two.wait_for("Second?", "#conversation")
    two.stop.wait_for()
    two.stop.click()
    for tab in (one, two):
        tab.answer()
        tab.wait_for("Second?", "#conversation")
    assert one.conversation.inner_text() == two.conversation.inner_text()
    assert two.box.input_value() == "a draft of the second tab"


def test_another_chat_can_be_asked_while_one_is_answered(tabs, serving):
    tab = tabs()
    tab.ask("First chat?")
    first = chat_of(tab)
    tab.page.locator("#new-chat").click()
    tab.page.wait_for_function("!location.search.includes('chat=')")
    tab.ask("Second chat?")
    tab.page.wait_for_function(
        "first => location.search.includes('chat=') && !location.search.includes(first)", arg=first
    )
    wait_for_words(tab, 5)
    assert "First chat?" not in tab.conversation.inner_text()
    tab.page.wait_for_function("document.querySelectorAll('#chats small').length == 2")
    tab.page.locator(f"#chats [data-chat='{first}']").click()
    tab.wait_for("First chat?", "#conversation")
    tab.stop.click()
    tab.answer()
    second = tab.page.locator("#chats .lc-chat", has_text="Second chat?")
    second.click()
    tab.wait_for("Second chat?", "#conversation")
    tab.stop.click()
    tab.answer()


def test_a_file_that_cannot_be_read_comes_back_with_its_question_also_after_a_reload(tabs, serving):
    tab = tabs()
    tab.drop("picture.txt", b"\x89PNG\r\n\x1a\n")
    tab.ask("What is there?")
    tab.wait_for("picture.txt")
    tab.page.wait_for_function("document.querySelector('#question textarea').value == 'What is there?'")
    with closing(Store(serving.home)) as store:
        assert not any(store.chats.messages(c.id) == [] for c in store.chats.all())


def test_a_page_that_is_used_and_left_reports_no_error_at_all(tabs):
    tab = tabs()
    page, errors = tab.page, []
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    tab.ask("Who keeps the harbour?")
    wait_for_words(tab, 3)
    chat_of(tab)
    for _ in range(2):
        page.reload()
        tab.stop.wait_for()
    for name in page.get_by_role("tab").all_inner_texts():
        page.get_by_role("tab", name=name).click()
    page.get_by_role("tab", name="Chat").click()
    tab.stop.click()
    tab.answer()
    page.locator("#new-chat").click()
    page.wait_for_function("!location.search.includes('chat=')")
    page.goto("about:blank")
    assert errors == []


# The stream of events


class _SlowStream:
    """An application whose streams of events come late, as over a slow connection: each of their parts by 80 ms."""

    def __init__(self, app) -> None:
        self._app = app

    async def __call__(self, scope, receive, send) -> None:
        async def late(message) -> None:
            if message["type"] == "http.response.body":
                await asyncio.sleep(0.08)
            await send(message)

        await self._app(scope, receive, late if scope.get("path", "").endswith("/queue/data") else send)


@pytest.fixture
def slow_address(window) -> Iterator[str]:
    with served_in_process(window, lambda app, port: _SlowStream(app)) as address:
        yield address


def test_no_event_is_lost_where_gradio_closes_a_stream_that_has_another_event(chromium, slow_address):
    """Without a stream that stays open, none of these pages said that the model is ready."""
    with chromium.new_context() as context:
        for _ in range(4):
            tab = Tab(context.new_page()).open(slow_address)
            tab.wait_for("ready")
            tab.page.close()


# Without a page


def test_an_answer_ends_without_any_page_and_how_it_ended_waits_to_be_shown(window):
    shown = ShownChat(window)
    starter = AnswerStarter(window, shown)
    chat = starter.begin_chat([])
    starter.ask(TypedQuestion("Who keeps the harbour?", [], "a tab"), chat, [], "", "", [])
    assert window.answers.chats == {chat}
    with pytest.raises(UsageError, match="is being answered"):
        starter.ask(TypedQuestion("And who else?", [], "a tab"), chat, [], "", "", [])
    wait_until(lambda: not window.answers.is_running(chat))
    assert [m.role for m in shown.messages(chat)] == ["user", "assistant"]
    assert window.answers.of(chat).shown.text.strip()


class _Worker:
    """A worker whose jobs are lists of events, which wait for ``go``."""

    def __init__(self) -> None:
        self.go, self.cancelled = threading.Event(), False

    def submit(self, job):
        return _Stream(self, job)


class _Stream:
    def __init__(self, worker: _Worker, job) -> None:
        self._worker, self._job = worker, job

    def __iter__(self):
        self._worker.go.wait(10)
        for event in self._job:
            if isinstance(event, Exception):
                raise event
            yield event

    def cancel(self) -> None:
        self._worker.cancelled = True
        self._worker.go.set()


def begun(running: RunningAnswers, worker: _Worker, *jobs: list) -> RunningAnswer:
    answer = RunningAnswer("chat", StreamingAnswer("chat", []))
    running.begin(answer, [(job, worker) for job in jobs])
    return answer


def test_one_answer_in_a_chat_at_a_time_and_its_end_is_kept_until_it_was_shown():
    running, worker = RunningAnswers(), _Worker()
    answer = begun(running, worker, [Token("Ann ", 1), Token("Marlow", 2)], [Note("a note")])
    assert (running.chats, running.begun("chat")) == ({"chat"}, 1)
    with pytest.raises(UsageError, match="is being answered"):
        begun(running, worker, [])
    running.note_shown(answer)
    assert running.of("chat") is answer
    worker.go.set()
    wait_until(lambda: not answer.running)
    assert (answer.shown.text, answer.shown.notes, answer.failed) == ("Ann Marlow", ["a note"], False)
    assert running.chats == set()
    assert running.of("chat") is answer
    running.note_shown(answer)
    assert running.of("chat") is None


def test_a_stop_ends_all_jobs_and_an_error_is_told():
    running, worker = RunningAnswers(), _Worker()
    answer = begun(running, worker, [Token("Ann", 1)], [Token(" Marlow", 2)])
    running.stop("chat")
    wait_until(lambda: not answer.running)
    assert worker.cancelled
    assert "Marlow" not in answer.shown.text
    assert (answer.failed, "Stopped" in answer.shown.status) == (True, True)
    running.note_shown(answer)
    failing = begun(running, worker, [ChatError("no such chat", "begin one")])
    wait_until(lambda: not failing.running)
    assert (failing.failed, "no such chat" in failing.shown.status) == (True, True)
    running.close()


def test_updates_of_a_view_end_before_the_next_is_shown():
    views, left = ChatViews(), threading.Event()
    first = views.show("tab", "a", 0)

    def follow() -> None:
        with views.following("tab") as view:
            assert view is first
            with views.following("tab") as again:
                assert again is None, "one stream of updates is enough"
            assert not views.wait("tab", first, 10)
            left.set()

    thread = threading.Thread(target=follow)
    thread.start()
    wait_until(lambda: views.is_followed("tab"))
    second = views.show("tab", "b", 0)
    assert left.is_set()
    thread.join()
    assert views.get("tab") is second
    views.close("tab")
    assert views.get("tab") is None


def test_the_longer_an_answer_the_less_often_it_is_drawn():
    assert redraw_interval("") == REDRAW_INTERVAL
    assert redraw_interval("x" * 5000) == 2 * REDRAW_INTERVAL
    assert redraw_interval("x" * 100_000) > 2.0
