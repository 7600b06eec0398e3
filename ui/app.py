"""Builds the window's gradio application with all its pages, and runs the server for it."""

import threading
from collections.abc import Callable
from pathlib import Path

from localctx.ui import gradio_setup  # noqa: F401 (before gradio is imported)

# isort: split
import gradio as gr
from fastapi import FastAPI

from localctx.serving.ask_endpoint import AskEndpoint
from localctx.serving.http import LOOPBACK, access_key, listen, serve
from localctx.serving.open_servers import new_key, registered
from localctx.settings import Settings
from localctx.ui import event_errors, event_stream, uploads
from localctx.ui.browser_access import BrowserAccess
from localctx.ui.chat.chat_page import ChatPage
from localctx.ui.library.library_page import LibraryPage
from localctx.ui.malformed_requests import RequestCheck
from localctx.ui.settings.memory_page import MemoryPage
from localctx.ui.settings.settings_page import SettingsPage
from localctx.ui.theme import window_theme
from localctx.ui.viewer import document_routes
from localctx.ui.window import AppWindow

SCRIPTS = ("page.js", "viewer.js")
HEAD_STYLES = ("frame.css", "viewer.css")  # gradio makes rules of css_paths apply only inside its pages
KEYS = """<details class="lc-keys"><summary>Keyboard shortcuts</summary><dl>
<dt><kbd>Ctrl</kbd> <kbd>K</kbd></dt><dd>find and open a chat</dd>
<dt><kbd>/</kbd></dt><dd>write a question</dd>
<dt><kbd>Enter</kbd></dt><dd>ask; with <kbd>Shift</kbd> a new line</dd>
<dt><kbd>Esc</kbd></dt><dd>close a panel, or stop the answer</dd>
</dl></details>"""


def source(name: str) -> str:
    """Returns the text of a file in this folder. A script is a JavaScript function that the page runs once."""
    return Path(__file__).with_name(name).read_text("utf-8")


def build(window: AppWindow) -> gr.Blocks:
    """Build all pages as tabs, and connect their event handlers."""
    with gr.Blocks(
        title="localctx", fill_width=True, analytics_enabled=False, delete_cache=(uploads.KEPT_SECONDS,) * 2
    ) as page:
        chat = ChatPage(window)
        with gr.Sidebar(width=280):
            gr.HTML("<h1>localctx</h1>", elem_id="brand")  # style.css puts the tabs below it
            chat.sidebar.build()
            gr.HTML(KEYS, elem_id="keys")
        with gr.Tabs(elem_id="main-tabs") as tabs:
            library = LibraryPage(window, tabs, chat)
            memory, settings = MemoryPage(window), SettingsPage(window)
            with gr.Tab("Chats", id="chat"):
                chat.build()
            with gr.Tab("Library", id="library") as tab:
                library.build()
            with gr.Tab("Settings", id="settings"):
                settings.build(memory.build)
        event_stream.keep_open(page)
        event_errors.tell_in_one_line(page)
        chat.wire(page)
        chat.viewer.wire(chat.chat, chat.question, tabs)
        library.wire(page, tab)
        memory.wire(page, tabs, settings.pages, chat.chat)
        settings.wire(page, tabs)
    return page


def mount(window: AppWindow, host: str, port: int) -> FastAPI:
    """Returns a FastAPI application that serves the pages at ``host:port``."""
    app, page = FastAPI(openapi_url=None), build(window)
    document_routes.add_routes(app, window)
    app.add_middleware(RequestCheck, page=page)
    return gr.mount_gradio_app(
        app,
        page,
        path="/",
        server_name=host,
        server_port=port,
        footer_links=[],
        run_history=False,
        max_file_size=uploads.MAX_UPLOAD,
        show_error=False,
        ssr_mode=False,
        enable_monitoring=False,
        theme=window_theme(),
        css_paths=[Path(__file__).with_name("style.css")],
        head=f"<style>{''.join(map(source, HEAD_STYLES))}</style>",
        js=f"() => {{ {''.join(f'({source(name)})();' for name in SCRIPTS)} }}",
    )


def run(settings: Settings, host: str, port: int, max_parallel: int, on_ready: Callable[[str], None]) -> None:
    """Serve the window until Ctrl-C, with up to ``max_parallel`` questions answered at a time.

    ``on_ready`` is called with the URL to open, which contains the access key. Raises UsageError.
    """
    sock = listen(host, port)
    port = sock.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    key = access_key(settings.home)
    window = AppWindow(settings, max_parallel)
    uploads.make_upload_folder(window)
    window.watcher.start()
    window.table.start()
    window.indexer.wake()
    try:
        pages = BrowserAccess(mount(window, host, port), (*LOOPBACK, name), key, port)
        own_key, stopping = new_key(), threading.Event()
        app = AskEndpoint(pages, window.answer_worker, lambda: window.settings, own_key, stopping)
        with registered(settings.home, host, port, own_key):
            serve(app, sock, lambda: on_ready(f"http://{name}:{port}/?key={key}"), stopping.set)
    finally:
        window.close()
