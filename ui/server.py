"""Server: the window on a port of this machine, open to its owner's browser and to nobody else.

Who first comes has the key in the address; a cookie carries it from then on (as Jupyter does). The name a browser
asked for is looked at against DNS rebinding, the site a request comes from against forged ones.
"""

import os
import re
import secrets
import socket
import threading
import webbrowser
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse

from localctx.errors import UsageError

YEAR = 365 * 24 * 3600
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
POLICY = (  # gradio evaluates what `js=` of an event says; scripts in the page are let run by their hashes
    "default-src 'self'; script-src 'self' 'unsafe-eval'{hashes}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self' blob:; connect-src 'self' data: blob:; "
    "worker-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

_API = "/gradio_api/"
USED = (  # what the page asks for; gradio has more: proxies, recordings, an editor of its own source
    *("/assets/", "/static/", "/theme.css", "/favicon.ico", "/manifest.json", "/config"),
    *(f"{_API}{name}" for name in ("run/predict", "queue/", "heartbeat/", "upload", "file=", "cancel", "reset")),
    *(f"{_API}{name}" for name in ("theme.css", "startup-events", "component_server")),
)
FETCHING = (f"{_API}file=http:", f"{_API}file=https:")  # gradio would ask another server
_SCRIPT = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]


class Gate:
    """Lets through requests for one of the ``hosts``, from this very site, by who has the ``key``."""

    def __init__(self, app: App, hosts: tuple[str, ...], key: str, port: int) -> None:
        self._app, self._hosts, self._key = app, hosts, key
        self._cookie = f"localctx-{port}"  # browsers do not tell ports apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application around another."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)  # type: ignore[arg-type]
        send, host = _with_headers(send, (scope["type"], scope["path"]) == ("http", "/")), headers.get("host", "")
        if refusal := self._refusal(scope, host, headers):
            await refusal(scope, receive, send)  # type: ignore[arg-type]
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, host: str, headers: Headers) -> PlainTextResponse | RedirectResponse | None:
        if scope["type"] != "http":
            return PlainTextResponse("no", 403)  # nothing here speaks WebSocket
        if urlsplit(f"//{host}").netloc != host or name_of(host) not in self._hosts:
            return PlainTextResponse("This window is not at that name.", 400)
        if not _same_site(headers, host) and (scope["method"] not in ("GET", "HEAD") or scope["path"] != "/"):
            return PlainTextResponse("This request came from another site.", 403)
        asked = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        given = asked.pop("key", "")
        if given and secrets.compare_digest(given.encode(), self._key.encode()):
            return self._welcome(asked)
        if not secrets.compare_digest(_cookie(headers, self._cookie).encode(), self._key.encode()):
            return PlainTextResponse("Open the address that `localctx ui` printed: it has the key.", 403)
        if (scope["path"] != "/" and not scope["path"].startswith(USED)) or scope["path"].startswith(FETCHING):
            return PlainTextResponse("Nothing is here.", 404)
        return None

    def _welcome(self, asked: Mapping[str, str]) -> RedirectResponse:
        """To the page without the key, which then stays out of the history."""
        response = RedirectResponse(f"/?{urlencode(asked)}" if asked else "/", 303)
        response.set_cookie(self._cookie, self._key, max_age=YEAR, httponly=True, samesite="lax")
        return response


def name_of(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _same_site(headers: Headers, host: str) -> bool:
    """Whether a request comes from a page of this window, or from no page at all."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or origin == f"http://{host}"


def _cookie(headers: Headers, wanted: str) -> str:
    pairs = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return next((value for name, _, value in pairs if name == wanted), "")


def _with_headers(send: Send, page: bool) -> Send:
    """Says ``HEADERS`` with a response; that of the ``page`` waits for its end, because its scripts are named too."""
    held: list[Any] = []

    async def sending(message: Any) -> None:
        held.append(message)
        if page and not _ends(message):
            return
        for start in [m for m in held if m["type"] == "http.response.start"]:
            body = b"".join(m.get("body", b"") for m in held)
            MutableHeaders(scope=start).update(HEADERS | {"content-security-policy": _policy(body)})
        for one in held:
            await send(one)
        held.clear()

    return sending


def _ends(message: Any) -> bool:
    return message["type"] == "http.response.body" and not message.get("more_body")


def _policy(page: bytes) -> str:
    """What a page may load and run: of scripts inside it only those that it came with."""
    hashes = (b64encode(sha256(script).digest()).decode() for script in _SCRIPT.findall(page))
    return POLICY.format(hashes="".join(f" 'sha256-{h}'" for h in hashes))


def key_of(home: Path, to: str = "ui") -> str:
    """The key of the data folder ``home`` to the window, or something else; made once, readable by its owner alone."""
    file = home / f"{to}.key"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError), os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
        f.write(secrets.token_urlsafe(24))
    return file.read_text().strip()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, at ``port`` or (0) at a free one. Raises UsageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as e:
        sock.close()
        raise UsageError(
            f"nothing can listen at {host}:{port} ({e.strerror})", "choose another with --port, 0 for a free one"
        ) from e
    return sock


class _Server(uvicorn.Server):
    leaving: Callable[[], None]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.leaving()
        super().handle_exit(sig, frame)


def serve(app: App, sock: socket.socket, ready: Callable[[], None], leaving: Callable[[], None] = lambda: None) -> None:
    """Serve until Ctrl-C; ``ready`` is called, once, when requests are answered, ``leaving`` when that comes to an end,
    by a signal handler.
    """
    server = _Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, ws="none"))
    server.leaving = leaving
    threading.Thread(target=_when_started, args=(server, ready), daemon=True).start()
    server.run([sock])


def _when_started(server: uvicorn.Server, ready: Callable[[], None]) -> None:
    while not server.started:
        if server.should_exit:
            return
        threading.Event().wait(0.02)
    ready()


def open_browser(url: str) -> bool:
    """Show ``url`` in the browser, if there is one to be had."""
    with suppress(webbrowser.Error):
        return webbrowser.open(url)
    return False
