"""Controls access to the API's HTTP port: by its key, and by the Host header (against DNS rebinding)."""

import secrets
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from localctx.serving.api_error import ApiError
from localctx.serving.http import host_name
from localctx.serving.request_body import HEADERS


class ApiAccess:
    """ASGI middleware: rejects requests without the ``key``, or with a Host header that is not in ``hosts``.

    If ``hosts`` is empty, any Host is accepted. /health needs no key.
    """

    def __init__(self, app: Any, hosts: tuple[str, ...], key: str) -> None:
        self._app, self._hosts, self._key = app, hosts, key.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let the wrapped application answer, or send an error response."""
        refusal = self._refusal(scope, Headers(scope=scope)) if scope["type"] == "http" else None
        await (error_response(refusal) if refusal else self._app)(scope, receive, send)

    def _refusal(self, scope: Any, headers: Headers) -> ApiError | None:
        if self._hosts and host_name(headers.get("host", "")) not in self._hosts:
            return ApiError("this server does not have that host name", status=421)
        if scope["path"] == "/health":
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), self._key):
            return None
        return ApiError("send the key that `localctx serve` printed, as Authorization: Bearer", None, 401, "no_key")


def error_response(error: ApiError) -> Response:
    """Returns the response that reports an error, as JSON."""
    return JSONResponse(error.body, error.status, HEADERS)
