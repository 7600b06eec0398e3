"""The window: all pages in one gradio application, and its server."""

from collections.abc import Callable
from pathlib import Path

from localctx.ui import gradio_setup  # noqa: F401 (before gradio is imported)

# isort: split
import gradio as gr
from fastapi import FastAPI

from localctx.serving.http import LOOPBACK, access_key, listen, serve
from localctx.settings import Settings
from localctx.ui import uploads
from localctx.ui.batch_page import BatchPage
from localctx.ui.chat_page import ChatPage
from localctx.ui.http_access import BrowserAccess
from localctx.ui.library_page import LibraryPage
from localctx.ui.memory_page import MemoryPage
from localctx.ui.settings_page import SettingsPage
from localctx.ui.window import AppWindow

SANS = ("ui-sans-serif", "system-ui", "sans-serif")
MONO = ("ui-monospace", "Consolas", "monospace")


def theme() -> gr.themes.Base:
    """Return a theme that loads no fonts or files from the network."""
    soft = gr.themes.Soft(primary_hue="teal", secondary_hue="teal", neutral_hue="slate", font=SANS, font_mono=MONO)
    return soft.set(
        block_title_background_fill="none",
        block_title_padding="0",
        block_title_text_color="*body_text_color",
        block_label_background_fill="none",
        block_label_text_color="*body_text_color",
        block_label_background_fill_dark="none",
        block_label_text_color_dark="*neutral_100",
        block_title_text_color_dark="*neutral_100",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        input_placeholder_color="*neutral_600",
        input_placeholder_color_dark="*neutral_300",
        checkbox_label_background_fill_selected_dark="*primary_700",
        checkbox_label_background_fill_selected="*primary_700",  # white text on it has a contrast of 4.5 : 1
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover_dark="*primary_600",
    )


def build(window: AppWindow) -> gr.Blocks:
    """Build all pages as tabs, and connect their event handlers."""
    with gr.Blocks(
        title="localctx", fill_width=True, analytics_enabled=False, delete_cache=(uploads.KEPT_SECONDS,) * 2
    ) as page:
        chat = ChatPage(window)
        with gr.Sidebar(width=280):
            gr.HTML("<h1>localctx</h1>")
            chat.sidebar.build()
        with gr.Tabs() as tabs:
            library, batch = LibraryPage(window, tabs, chat), BatchPage(window)
            memory, settings = MemoryPage(window), SettingsPage(window)
            with gr.Tab("Chat", id="chat"):
                chat.build()
            with gr.Tab("Library", id="library") as tab:
                library.build()
            with gr.Tab("Batch", id="batch"):
                batch.build()
            with gr.Tab("Memory", id="memory"):
                memory.build()
            with gr.Tab("Settings", id="settings"):
                settings.build()
        chat.wire(page)
        library.wire(page, tab)
        batch.wire(page, tabs)
        memory.wire(page, tabs, chat.chat)
        settings.wire(page, tabs)
    return page


def mount(window: AppWindow, host: str, port: int) -> FastAPI:
    """Return the pages as a FastAPI application at ``host:port``."""
    app = FastAPI(openapi_url=None)
    return gr.mount_gradio_app(
        app,
        build(window),
        path="/",
        server_name=host,
        server_port=port,
        footer_links=[],
        run_history=False,
        max_file_size=uploads.MAX_UPLOAD,
        show_error=False,
        ssr_mode=False,
        enable_monitoring=False,
        theme=theme(),
        css_paths=[Path(__file__).with_name("style.css")],
        js=Path(__file__).with_name("page.js").read_text(),
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
    try:
        app = BrowserAccess(mount(window, host, port), (*LOOPBACK, name), key, port)
        serve(app, sock, lambda: on_ready(f"http://{name}:{port}/?key={key}"))
    finally:
        window.close()
