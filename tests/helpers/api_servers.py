"""API servers in this process, with tiny models."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import uvicorn
from ask_in_process import session

from localctx.serving.api_access import ApiAccess
from localctx.serving.http import LOOPBACK, access_key, listen
from localctx.serving.openai_server import OpenAIServer


@contextmanager
def api_server(home: Path, model: Path, **settings) -> Iterator[tuple[str, str, Path]]:
    """A server with a model: where it is, its key, and its data folder."""
    sock = listen("127.0.0.1", 0)
    with session(home, model, **settings) as s, closing(OpenAIServer(s.settings, 8)) as server:
        list(server.load())
        key = access_key(home, "serve")
        http = uvicorn.Server(uvicorn.Config(ApiAccess(server.app(), LOOPBACK, key), log_level="warning", ws="none"))
        thread = threading.Thread(target=http.run, args=([sock],))
        thread.start()
        while not http.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/v1", key, home
        finally:
            server.stopping.set()
            http.should_exit = True
            thread.join()
