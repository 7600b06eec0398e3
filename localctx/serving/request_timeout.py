"""Closes HTTP/1.1 connections whose request does not arrive in time. Half-sent requests would stay open forever."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 30.0  # for a request's headers and body, plus
BYTES_PER_SECOND = 20_000  # minimum rate of a large body
_INCOMPLETE = (h11.IDLE, h11.SEND_BODY)


class RequestTimeoutProtocol(H11Protocol):
    """Closes a connection whose request is incomplete after REQUEST_SECONDS.

    The time counts from the request's first byte, or from connecting. Each byte received extends it by 1 /
    BYTES_PER_SECOND. Nothing times out while the application does not read.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request."""
        super().connection_made(transport)
        self._since: float | None = self.loop.time()
        self._received = 0
        self._timer = self.loop.call_later(REQUEST_SECONDS, self._look)

    def data_received(self, data: bytes) -> None:
        """Receive part of a request."""
        if self._since is None:
            self._since, self._received = self.loop.time(), 0
        self._received += len(data)
        super().data_received(data)
        if self.conn.their_state not in _INCOMPLETE:
            self._since = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def _look(self) -> None:
        left = REQUEST_SECONDS
        if self._since is not None and not self.flow.read_paused:
            left += self._since + self._received / BYTES_PER_SECOND - self.loop.time()
        if left <= 0:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(left + 0.01, self._look)
