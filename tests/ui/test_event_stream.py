"""The streams of events that stay open, and what is kept of tabs that were left."""

import gradio as gr
import pytest

from localctx.ui import event_stream


@pytest.fixture
def queue():
    with gr.Blocks() as page:
        event_stream.keep_open(page)
    return page._queue


def test_a_tab_always_has_an_event_left(queue):
    queue.pending_event_ids_session["tab"] = {"event"}
    queue.pending_event_ids_session["tab"].remove("event")
    queue.pending_event_ids_session["tab"] -= {"another"}
    assert len(queue.pending_event_ids_session["tab"]) == 1
    assert len(queue.pending_event_ids_session["a tab that is gone"]) == 1


def test_a_second_stream_of_a_tab_that_was_left_finds_its_messages_and_ends_too(queue):
    messages = queue.pending_messages_per_session
    messages["tab"] = "its messages"
    for _ in range(2):  # each stream deletes them where it ends
        assert "tab" in messages
        del messages["tab"]
    assert messages["tab"] == "its messages"


def test_messages_of_the_tabs_left_longest_ago_go_when_there_are_many(queue):
    messages = queue.pending_messages_per_session
    messages.max_size = 2
    for tab in ("first", "second", "third"):
        messages[tab] = f"those of the {tab}"
        del messages[tab]
    assert list(messages) == ["second", "third"]
    assert messages.popitem() == ("third", "those of the third")
