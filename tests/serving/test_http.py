"""The HTTP server beneath the window and the API: requests that fail, that are half sent, and that are left."""

import asyncio
import socket
import threading
import time
from contextlib import closing, contextmanager

import pytest
import uvicorn
from clock import seconds_since
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from localctx.serving import http
from localctx.serving.http import listen, server_config

pytestmark = pytest.mark.slow

SECRET = "the rent is 900 euros"
HEAD = b"POST /%s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"


async def app(scope, receive, send):
    """Answers with the body; fails where the path says so."""
    if scope["type"] == "lifespan":
        return
    body = await Request(scope, receive).body()
    if scope["path"] == "/fail":
        raise KeyError(SECRET)
    await PlainTextResponse(body)(scope, receive, send)


@contextmanager
def served(application):
    with closing(listen("127.0.0.1", 0)) as sock:
        server = uvicorn.Server(server_config(application))
        thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield server, sock.getsockname()
        server.should_exit = True
        thread.join(30)


@pytest.fixture
def server(home, monkeypatch):
    """A server that waits half a second for a request."""
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.5)
    with served(app) as both:
        yield both


def said(address, *parts: bytes) -> bytes:
    """All that a server says to parts of a request, until it closes the connection."""
    with socket.create_connection(address, timeout=60) as client:
        for part in parts:
            client.sendall(part)
        found = b""
        try:
            while part := client.recv(65536):
                found += part
                if found.endswith(b"hello"):
                    break
        except ConnectionResetError:
            pass
        return found


def test_a_request_that_fails_is_told_one_line(server, capfd):
    answer = said(server[1], HEAD % b"fail", b"hello")
    assert answer.startswith(b"HTTP/1.1 500")
    line = answer.partition(b"\r\n\r\n")[2].decode()
    assert "KeyError" in line
    assert "localctx.log" in line
    assert SECRET not in line
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "parts", [(), (b"G",), (b"GET / HTTP/1.1\r\nHost: a\r\n",), (HEAD % b"",), (HEAD % b"", b"hel")], ids=str
)
def test_a_half_sent_request_is_dropped(server, parts):
    start = time.monotonic()
    assert b"200 OK" not in said(server[1], *parts)
    assert seconds_since(start) < 30
    while server[0].server_state.connections:
        assert seconds_since(start) < 60
        time.sleep(0.05)


def test_whole_requests_of_one_connection_are_answered(server):
    with socket.create_connection(server[1], timeout=60) as client:
        for _ in range(2):
            client.sendall(HEAD % b"" + b"hello")
            found = b""
            while not found.endswith(b"hello"):
                more = client.recv(65536)
                assert more, "the connection was closed"
                found += more
            time.sleep(1)  # twice as long as a request may take


def test_a_slow_answer_is_waited_for(home, monkeypatch):
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.2)

    async def slow(scope, receive, send):
        if scope["type"] == "http":
            await asyncio.sleep(1.5)
            await PlainTextResponse("hello")(scope, receive, send)

    with served(slow) as (_, address):
        assert said(address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").endswith(b"hello")


def test_nothing_is_left_of_clients_that_hang_up(server, caplog):
    for i in range(60):
        with socket.create_connection(server[1], timeout=60) as client:
            client.sendall(HEAD % b"" + b"hello"[: i % 6])
    start = time.monotonic()
    while server[0].server_state.connections or server[0].server_state.tasks:
        assert seconds_since(start) < 60
        time.sleep(0.05)
    assert "not foreseen" not in caplog.text
