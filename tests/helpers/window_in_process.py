"""A window in this process: opened on a model, and served on a free port."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # importing gradio takes seconds
    from localctx.ui.window import AppWindow


@contextmanager
def opened(home: Path, model: Path) -> "Iterator[AppWindow]":
    """A window on a model that says four tokens."""
    from localctx.settings import load_settings
    from localctx.ui.window import AppWindow

    settings = load_settings(home=home, model=str(model), threads=1, embedder="none", max_tokens=4)
    with closing(AppWindow(settings)) as window:
        yield window


@contextmanager
def served_in_process(window: "AppWindow", around: Callable[[Any, int], Any] = lambda app, port: app) -> Iterator[str]:
    """The address at which the pages of ``window`` are served, by what ``around`` makes of the app for a port."""
    import uvicorn

    from localctx.serving.http import listen, server_config
    from localctx.ui.app import mount

    window.uploads.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, closing(listen("127.0.0.1", 0)) as sock:
        patch.setenv("GRADIO_TEMP_DIR", str(window.uploads))
        port = sock.getsockname()[1]
        app = around(mount(window, "127.0.0.1", port), port)
        server = uvicorn.Server(server_config(app))
        thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{port}/"
        server.should_exit = True
        thread.join(10)


@contextmanager
def served_with_key(window: "AppWindow") -> Iterator[str]:
    """As ``served_in_process``; whoever has no key is refused, as in the real command."""
    from localctx.serving.http import LOOPBACK
    from localctx.ui.browser_access import BrowserAccess

    with served_in_process(window, lambda app, port: BrowserAccess(app, LOOPBACK, "key", port)) as address:
        yield f"{address}?key=key"
