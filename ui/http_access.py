"""Server: the window on a port of this machine, open to its owner's browser and to nobody else.

Who first comes has the key in the address; a cookie carries it from then on (as Jupyter does). The name a browser
asked for is looked at against DNS rebinding, the site a request comes from against forged ones.
"""

import re
import secrets
import webbrowser
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse

from localctx.serving.http import App, Receive, Send, name_of

YEAR = 365 * 24 * 3600
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


class BrowserGate:
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


def open_browser(url: str) -> bool:
    """Show ``url`` in the browser, if there is one to be had."""
    with suppress(webbrowser.Error):
        return webbrowser.open(url)
    return False
