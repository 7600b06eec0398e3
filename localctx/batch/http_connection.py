"""An HTTP connection to one server, for one thread. Its requests can be cancelled at any time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import httpx

from localctx.errors import Cancelled

POLL_INTERVAL = 0.1  # seconds between two checks for cancellation
CONNECT_TIMEOUT = 10  # seconds
READ_TIMEOUT = 600  # seconds until the next bytes: the server reads a long text before it answers
MAX_BODY_BYTES = 1 << 20  # of a response that is not streamed, such as a model list or an error

T = TypeVar("T")


class ConnectionBroken(Exception):
    """Raised if the server closes the connection or times out. ``unreachable`` is True if no connection was made at
    all.
    """

    def __init__(self, why: str, unreachable: bool = False) -> None:
        super().__init__(why)
        self.unreachable = unreachable


class HttpConnection:
    """Sends requests to URLs below ``base``, with ``headers``. Once ``cancelled`` returns True, calls raise Cancelled.

    Proxies named in environment variables are used, except for a server on this machine (``is_local``). Redirects are
    not followed, because the key would be sent to another address. Close the connection after use.
    """

    def __init__(self, base: str, headers: Mapping[str, str], is_local: bool, cancelled: Callable[[], bool]) -> None:
        self._cancelled, self._loop = cancelled, asyncio.new_event_loop()
        timeout = httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT)
        self._client = httpx.AsyncClient(base_url=base, headers=headers, timeout=timeout, trust_env=not is_local)

    def close(self) -> None:
        """Close the connection and its event loop."""
        self._loop.run_until_complete(self._client.aclose())
        self._loop.close()

    @contextmanager
    def send(self, method: str, path: str, body: Any = None) -> Iterator["HttpReply"]:
        """Send a request to ``path`` with the JSON ``body``. Yields the reply once its headers have arrived. Raises
        ConnectionBroken, Cancelled.
        """
        request = self._client.build_request(method, path, json=body)
        response = self.wait(self._client.send(request, stream=True))
        try:
            yield HttpReply(self, response)
        finally:
            with suppress(httpx.HTTPError):
                self._loop.run_until_complete(response.aclose())

    def pause(self, seconds: float) -> None:
        """Wait for this number of seconds. Raises Cancelled."""
        self.wait(asyncio.sleep(seconds))

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on this connection's event loop, and return its result. Raises ConnectionBroken,
        Cancelled.
        """
        task = self._loop.create_task(coroutine)
        try:
            while not task.done():
                self._loop.run_until_complete(asyncio.wait({task}, timeout=POLL_INTERVAL))
                if self._cancelled():
                    raise Cancelled
            return task.result()
        except (httpx.ConnectError, httpx.ConnectTimeout) as e:
            raise ConnectionBroken(str(e) or "no answer", unreachable=True) from e
        except httpx.TimeoutException as e:
            raise ConnectionBroken("no more data within the time limit") from e
        except (httpx.HTTPError, httpx.StreamError) as e:
            raise ConnectionBroken(str(e) or type(e).__name__) from e
        finally:
            while not task.done():  # a library that is closing its connection may miss the first cancel
                task.cancel()
                self._loop.run_until_complete(asyncio.wait({task}, timeout=POLL_INTERVAL))


class HttpReply:
    """The server's reply to a request: ``status``, ``headers`` and a body that can be read once."""

    def __init__(self, connection: HttpConnection, response: httpx.Response) -> None:
        self._connection, self._response = connection, response
        self.status, self.headers = response.status_code, response.headers

    @property
    def streams(self) -> bool:
        """True if the body is a stream of server-sent events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def lines(self) -> Iterator[str]:
        """Yield lines of the body as they arrive. Raises ConnectionBroken, Cancelled."""
        lines = self._response.aiter_lines()
        while (line := self._connection.wait(_next(lines))) is not None:
            yield line

    def text(self) -> str:
        """Return the whole body as text. Raises ConnectionBroken, Cancelled."""
        return self._connection.wait(self._read())

    async def _read(self) -> str:
        data = b""
        async for part in self._response.aiter_bytes():
            data += part
            if len(data) > MAX_BODY_BYTES:
                raise httpx.ReadError("the response is too long")
        return data.decode(errors="replace")


async def _next(lines: Any) -> str | None:
    return await anext(lines, None)
