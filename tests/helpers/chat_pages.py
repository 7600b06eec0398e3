"""The chat page without a server, for tests that call its handlers."""

import gradio as gr

from localctx.ui.chat.chat_page import ChatPage
from localctx.ui.window import AppWindow


def build_chat_page(window: AppWindow) -> ChatPage:
    """The chat page of a window, built and wired in Blocks of its own."""
    page = ChatPage(window)
    with gr.Blocks() as blocks:
        page.build()
        page.sidebar.build()
        page.wire(blocks)
    return page
