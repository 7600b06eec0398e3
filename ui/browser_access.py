"""Controls access to the window's HTTP port: only its owner's browser may use it.

The first request has the key in the URL, and later requests have it in a cookie (as in Jupyter). Checking the Host
header prevents DNS rebinding; checking the origin prevents cross-site requests.
"""

import re
import secrets
import webbrowser
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from localctx.serving.http import App, Receive, Send, host_name

YEAR = 365 * 24 * 3600
POLICY = (  # unsafe-eval: gradio evaluates the `js=` of events; the page's inline scripts are allowed by hash
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
ALLOWED_PATHS = (  # the paths that the page needs; gradio also has proxies, recordings, and an editor of its source
    *("/assets/", "/static/", "/theme.css", "/favicon.ico", "/manifest.json", "/config"),
    *(f"{_API}{name}" for name in ("run/predict", "queue/", "heartbeat/", "upload", "file=", "cancel", "reset")),
    *(f"{_API}{name}" for name in ("theme.css", "startup-events", "component_server")),
    f"{_API}app_id",  # polled after the connection was lost, until it is restored
    "/documents/",  # pages of documents by id and number (document_routes)
)
# refused, because gradio would fetch these files from another server
REMOTE_FILES = (f"{_API}file=http:", f"{_API}file=https:")
WITHOUT_KEY = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>localctx</title>
<meta name="viewport" content="width=device-width">
<style>
:root { color-scheme: light dark; font: 1.0625rem/1.6 system-ui, sans-serif }
main { max-width: 34rem; margin: 18vh auto 0; padding: 0 1.5rem }
h1 { font-size: 1.375rem }
code { padding: .1em .3em; border-radius: .3em; background: rgb(128 128 128 / .2) }
</style>
<main><h1>This address needs a key</h1>
<p>Open the whole address that <code>localctx ui</code> printed when it started: it ends in <code>?key=...</code>.
This browser remembers the key.</p>
<p>The address is gone? Close localctx and start <code>localctx ui</code> again: it opens this window.</p></main>"""
_MANIFEST = b'<link rel="manifest"'
_SCRIPT = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)

Scope = Mapping[str, Any]


class BrowserAccess:
    """ASGI middleware: rejects requests without the ``key``, with another Host header, or from another site.

    ``hosts`` are the accepted host names. ``port`` becomes part of the cookie's name.
    """

    def __init__(self, app: App, hosts: tuple[str, ...], key: str, port: int) -> None:
        self._app, self._hosts, self._key = app, hosts, key
        # named after the port, because browsers share cookies between the ports of a host
        self._cookie = f"localctx-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the wrapped application, or answer it with an error or a redirect."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)  # type: ignore[arg-type]
        send, host = _with_headers(send, (scope["type"], scope["path"]) == ("http", "/")), headers.get("host", "")
        if refusal := self._refusal(scope, host, headers):
            await refusal(scope, receive, send)  # type: ignore[arg-type]
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, host: str, headers: Headers) -> Response | None:
        if scope["type"] != "http":
            return PlainTextResponse("no", 403)  # the window uses no WebSocket
        if urlsplit(f"//{host}").netloc != host or host_name(host) not in self._hosts:
            return PlainTextResponse("This window is not at that name.", 400)
        if not _same_site(headers, host) and (scope["method"] not in ("GET", "HEAD") or scope["path"] != "/"):
            return PlainTextResponse("This request came from another site.", 403)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        given = query.pop("key", "")
        if given and secrets.compare_digest(given.encode(), self._key.encode()):
            return self._set_cookie(query)
        if not secrets.compare_digest(_cookie(headers, self._cookie).encode(), self._key.encode()):
            return HTMLResponse(WITHOUT_KEY, 403)
        if (scope["path"] != "/" and not scope["path"].startswith(ALLOWED_PATHS)) or scope["path"].startswith(
            REMOTE_FILES
        ):
            return PlainTextResponse("Nothing is here.", 404)
        return None

    def _set_cookie(self, query: Mapping[str, str]) -> RedirectResponse:
        """Set the cookie with the key, and redirect to the URL without the key, so that the key is not in the browser's
        history.
        """
        response = RedirectResponse(f"/?{urlencode(query)}" if query else "/", 303)
        response.set_cookie(self._cookie, self._key, max_age=YEAR, httponly=True, samesite="lax")
        return response


def _same_site(headers: Headers, host: str) -> bool:
    """True if a request comes from a page of this window, or from no page (such as a typed address)."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or origin == f"http://{host}"


def _cookie(headers: Headers, name: str) -> str:
    pairs = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return next((value for key, _, value in pairs if key == name), "")


def _with_headers(send: Send, page: bool) -> Send:
    """Wrap ``send`` to add HEADERS. If the response is a ``page``, it is buffered completely, because the content
    security policy has hashes of its scripts.
    """
    buffered: list[Any] = []

    async def send_with_headers(message: Any) -> None:
        buffered.append(message)
        if page and not _is_last(message):
            return
        body = b"".join(m.get("body", b"") for m in buffered)
        for start in [m for m in buffered if m["type"] == "http.response.start"]:
            MutableHeaders(scope=start).update(HEADERS | {"content-security-policy": _policy(body)})
        for one in _with_cookies_for_manifest(buffered, body) if page else buffered:
            await send(one)
        buffered.clear()

    return send_with_headers


def _with_cookies_for_manifest(messages: Sequence[Any], page: bytes) -> list[Any]:
    """Returns the ``messages`` with the ``page`` changed, so that the browser sends the cookie when it requests the
    manifest.

    Browsers do not send cookies for a manifest without ``crossorigin="use-credentials"``.
    """
    changed = page.replace(_MANIFEST, _MANIFEST + b' crossorigin="use-credentials"')
    others = [m for m in messages if m["type"] != "http.response.body"]
    for start in [m for m in others if m["type"] == "http.response.start" and changed != page]:
        MutableHeaders(scope=start)["content-length"] = str(len(changed))
    return [*others, {"type": "http.response.body", "body": changed}]


def _is_last(message: Any) -> bool:
    return message["type"] == "http.response.body" and not message.get("more_body")


def _policy(page: bytes) -> str:
    """Returns the content security policy of a page: only its own inline scripts may run."""
    hashes = (b64encode(sha256(script).digest()).decode() for script in _SCRIPT.findall(page))
    return POLICY.format(hashes="".join(f" 'sha256-{h}'" for h in hashes))


def open_browser(url: str) -> bool:
    """Open ``url`` in the default browser. Returns False if there is no browser."""
    with suppress(webbrowser.Error):
        return webbrowser.open(url)
    return False
