"""Wire: HTTP to one server, from one thread, in which a stop is heard at once. Answers come line by line."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import httpx

from localctx.errors import Cancelled

HEARD = 0.1  # seconds after which a stop is heard
CONNECT = 10  # seconds that a server may take to be there
PATIENCE = 600  # and to say the next word: a long text is read first
MOST_BYTES = 1 << 20  # of an answer that does not stream: a list of models, an error

T = TypeVar("T")


class ConnectionBroken(Exception):
    """A server that broke off, in words; or is ``unreachable``."""

    def __init__(self, why: str, unreachable: bool = False) -> None:
        super().__init__(why)
        self.unreachable = unreachable


class HttpConnection:
    """Requests to what is below ``base``, with ``headers``. ``stopped`` makes what waits raise Cancelled; close it.

    Proxies of the environment are used, but not to this machine (``near``). Redirections are not followed: a key would
    go along.
    """

    def __init__(self, base: str, headers: Mapping[str, str], near: bool, stopped: Callable[[], bool]) -> None:
        self._stopped, self._loop = stopped, asyncio.new_event_loop()
        timeout = httpx.Timeout(PATIENCE, connect=CONNECT)
        self._client = httpx.AsyncClient(base_url=base, headers=headers, timeout=timeout, trust_env=not near)

    def close(self) -> None:
        """Hang up."""
        self._loop.run_until_complete(self._client.aclose())
        self._loop.close()

    @contextmanager
    def send(self, method: str, path: str, body: Any = None) -> Iterator["HttpReply"]:
        """What is answered, of which the head is there. Raises Broken, Cancelled."""
        request = self._client.build_request(method, path, json=body)
        response = self.wait(self._client.send(request, stream=True))
        try:
            yield HttpReply(self, response)
        finally:
            with suppress(httpx.HTTPError):
                self._loop.run_until_complete(response.aclose())

    def pause(self, seconds: float) -> None:
        """Wait. Raises Cancelled."""
        self.wait(asyncio.sleep(seconds))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` gives. Raises Broken, Cancelled."""
        task = self._loop.create_task(work)
        try:
            while not task.done():
                self._loop.run_until_complete(asyncio.wait({task}, timeout=HEARD))
                if self._stopped():
                    raise Cancelled
            return task.result()
        except (httpx.ConnectError, httpx.ConnectTimeout) as e:
            raise ConnectionBroken(str(e) or "nobody answers", unreachable=True) from e
        except httpx.TimeoutException as e:
            raise ConnectionBroken("it fell silent") from e
        except (httpx.HTTPError, httpx.StreamError) as e:
            raise ConnectionBroken(str(e) or type(e).__name__) from e
        finally:
            while not task.done():  # a library that is just hanging up may miss the first
                task.cancel()
                self._loop.run_until_complete(asyncio.wait({task}, timeout=HEARD))


class HttpReply:
    """An answer on its way: ``status``, ``headers``, then its body, once."""

    def __init__(self, wire: HttpConnection, response: httpx.Response) -> None:
        self._wire, self._response = wire, response
        self.status, self.headers = response.status_code, response.headers

    @property
    def streams(self) -> bool:
        """Whether events come one by one."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def lines(self) -> Iterator[str]:
        """Its lines as they come. Raises Broken, Cancelled."""
        lines = self._response.aiter_lines()
        while (line := self._wire.wait(_next(lines))) is not None:
            yield line

    def text(self) -> str:
        """All of it. Raises Broken, Cancelled."""
        return self._wire.wait(self._read())

    async def _read(self) -> str:
        data = b""
        async for some in self._response.aiter_bytes():
            data += some
            if len(data) > MOST_BYTES:
                raise httpx.ReadError("its answer has no end")
        return data.decode(errors="replace")


async def _next(lines: Any) -> str | None:
    return await anext(lines, None)
