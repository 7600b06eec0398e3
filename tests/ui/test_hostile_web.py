"""Every route of the window and the API, asked in every way that another site or a stranger can: nothing is let in, and
what only an owner's broken page would send is refused without an error in the server.
"""

import asyncio
import itertools
import json
import re
import threading
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from localctx.serving.api_access import ApiAccess
from localctx.serving.ask_endpoint import AskEndpoint
from localctx.serving.http import LOOPBACK, access_key
from localctx.serving.openai_server import OpenAIServer
from localctx.settings import load_settings
from localctx.ui import browser_access
from localctx.ui.app import mount
from localctx.ui.browser_access import BrowserAccess
from localctx.ui.window import AppWindow

pytestmark = pytest.mark.process

HOST = "127.0.0.1:7860"
SECRET = "the lease says 600 euros"
ORIGINS = (None, "null", f"http://{HOST}.evil.com", "http://[::1]:1")
HOSTS = (HOST, "evil.example", "[::1].evil.com", "[::ffff:7f00:1]", "")
BODIES = {
    "": b"",
    "application/json": b'{"data": [], "fn_index": 1, "session_hash": "a", "messages": [], "stream": false}',
    "text/plain": b'{"data": []}',
    "application/x-www-form-urlencoded": b"data=[]&fn_index=1",
    "multipart/form-data; boundary=x": b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--x--\r\n',
}
TRAVERSALS = ("/%2e%2e/ui.key", "/../ui.key", "/assets/../../ui.key", "/gradio_api/file=../ui.key", "/documents/../1")


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("web") / "home"
        patch.setenv("GRADIO_TEMP_DIR", str(home / "uploads"))
        window = AppWindow(load_settings(home=home, embedder="none"))
        with window.store():
            (home / "uploads").mkdir()
            (home / "uploads" / "a.txt").write_text(SECRET)
            yield window
        window.close()


@pytest.fixture(scope="module")
def pages(window):
    return mount(window, "127.0.0.1", 7860)


def routes(app) -> list[str]:
    """Every path of an application, with something for each of its parameters."""
    found, left = set[str](), list(app.routes)
    while left:
        route = left.pop()
        left += getattr(getattr(route, "original_router", route), "routes", None) or []
        found |= {re.sub(r"{[^}]*}", "x", route.path)} if getattr(route, "path", "") else set()
    return sorted(found)


def disk(home: Path) -> dict[Path, int]:
    return {p: p.stat().st_size for p in home.rglob("*") if p.is_file()}


async def ask(app, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
    """The status and the body that an application answers a request with; no client changes the path before."""
    path, _, query = path.partition("?")
    pairs = [(k.encode(), v.encode()) for k, v in headers.items()]
    scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode()}
    scope |= {
        "query_string": query.encode(),
        "headers": pairs,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 7860),
    }
    scope |= {"scheme": "http", "root_path": "", "state": {}}
    waiting, said = [{"type": "http.request", "body": body, "more_body": False}], []

    async def receive():
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message):
        said.append(message)

    await asyncio.wait_for(app(scope, receive, send), 30)
    return said[0]["status"], b"".join(m.get("body", b"") for m in said)


def matrix(app, paths, more: dict[str, str]) -> list[tuple[int, bytes, tuple]]:
    """The answers to all requests that are not the owner's own."""

    async def all_of_them():
        found = []
        for path, method, origin, host, (kind, body) in itertools.product(
            [*paths, *TRAVERSALS], ("GET", "POST", "OPTIONS"), ORIGINS, HOSTS, BODIES.items()
        ):
            given = {"origin": origin, "host": host, "content-type": kind or None, **more}
            headers = {k: v for k, v in given.items() if v is not None}
            case = (method, path, origin, host, kind)
            found.append((*await ask(app, method, path, headers, body), case))
        return found

    return asyncio.run(all_of_them())


def test_no_stranger_gets_anything_from_the_window(window, pages):
    app, before = BrowserAccess(pages, LOOPBACK, access_key(window.settings.home), 7860), disk(window.settings.home)
    paths = [p for p in routes(pages) if p.startswith(("/gradio_api/", "/documents", "/config"))]
    for status, body, case in matrix(app, [*paths[::3], "/"], {}):
        assert status in (400, 403), case
        assert SECRET.encode() not in body
    assert disk(window.settings.home) == before


def test_no_other_site_uses_the_owners_cookie(window, pages):
    key, before = access_key(window.settings.home), disk(window.settings.home)
    app = BrowserAccess(pages, LOOPBACK, key, 7860)
    paths = [p for p in routes(pages) if p.startswith(("/gradio_api/", "/documents", "/config"))]
    foreign = {"cookie": f"localctx-7860={key}", "sec-fetch-site": "cross-site"}
    for status, body, case in matrix(app, paths[1::3], foreign):
        assert status in (400, 403), case
        assert SECRET.encode() not in body
    assert disk(window.settings.home) == before


def test_no_stranger_gets_anything_from_the_api(window, tmp_path):
    server = OpenAIServer(load_settings(home=tmp_path / "home", embedder="none"), 1)
    try:
        inner = server.app()
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic a2V5"}):
            app = AskEndpoint(ApiAccess(inner, LOOPBACK, "key"), None, None, "own", threading.Event())
            for status, _, case in matrix(app, [*routes(inner), "/localctx/ask", "/localctx/cancel"], headers):
                assert status in (401, 403, 421) or case[1] == "/health", case
    finally:
        server.close()


# The owner's key, under another name of the host: what a site does whose name suddenly means this machine


def assert_no_other_host_gets_in(app, paths, key: dict[str, str]) -> None:
    """Requests with the right key are answered under a name of this machine, and under no other."""
    answers = {case: (status, body) for status, body, case in matrix(app, paths, key)}
    assert any(status == 200 for (_, _, _, host, _), (status, _) in answers.items() if host == HOST)
    for case, (status, body) in answers.items():
        if case[3] != HOST:
            assert status in (400, 403, 421), case
            assert SECRET.encode() not in body


def test_no_other_host_name_gets_into_the_window_with_the_key(window, pages, monkeypatch):
    key = access_key(window.settings.home)
    app, cookie = BrowserAccess(pages, LOOPBACK, key, 7860), {"cookie": f"localctx-7860={key}"}
    assert_no_other_host_gets_in(app, ["/config"], cookie)
    monkeypatch.setattr(browser_access, "host_name", lambda host: LOOPBACK[0])
    with pytest.raises(AssertionError, match=r"evil\.example"):  # without the check
        assert_no_other_host_gets_in(app, ["/config"], cookie)


def test_no_other_host_name_gets_into_the_api_with_the_key(tmp_path):
    server = OpenAIServer(load_settings(home=tmp_path / "home", embedder="none"), 1)
    bearer = {"authorization": "Bearer key"}
    try:
        inner = server.app()
        assert_no_other_host_gets_in(ApiAccess(inner, LOOPBACK, "key"), ["/v1/models"], bearer)
        with pytest.raises(AssertionError, match=r"evil\.example"):  # without the check
            assert_no_other_host_gets_in(ApiAccess(inner, (), "key"), ["/v1/models"], bearer)
    finally:
        server.close()


# What an owner's page would not send

DEEP = "[" * 100_000 + "]" * 100_000
FORGED = {
    "deep": DEEP,
    "deep data": '{"data":' + "[" * 5000 + "]" * 5000 + ',"fn_index":1,"session_hash":"a"}',
    "empty": "",
    "null": "null",
    "list": "[]",
    "no event": '{"data":[]}',
    "far event": '{"data":[],"fn_index":99999,"session_hash":"a"}',
    "negative event": '{"data":[],"fn_index":-1,"session_hash":"a"}',
    "event of letters": '{"data":[],"fn_index":"x","session_hash":"a"}',
    "no data": '{"fn_index":2,"session_hash":"a"}',
    "data of another kind": '{"data":{"a":1},"fn_index":2,"session_hash":"a"}',
    "much data": json.dumps({"data": [1] * 1000, "fn_index": 2, "session_hash": "a"}),
    "a file elsewhere": '{"data":[{"path":"/etc/passwd","meta":{}}],"fn_index":3,"session_hash":"a"}',
    "surrogates": '{"data":["\\ud800"],"fn_index":2,"session_hash":"\\ud800"}',
    "no number": '{"data":[NaN,1e999],"fn_index":2,"session_hash":"a"}',
    "no text": b"\xff\xfe\x00",
}


@pytest.fixture
def owner(window, pages):
    key = access_key(window.settings.home)
    client = TestClient(BrowserAccess(pages, LOOPBACK, key, 7860), f"http://{HOST}", follow_redirects=False)
    client.get("/", params={"key": key})
    return client


@pytest.mark.parametrize("body", FORGED)
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_forged_events_are_refused_and_leave_no_traceback(owner, body, kind, capfd, caplog):
    for path in ("run/predict", "queue/join", "cancel", "reset", "component_server", "queue/data"):
        response = owner.post(f"/gradio_api/{path}", content=FORGED[body], headers={"content-type": kind})
        assert response.status_code < 500, path
        assert response.status_code >= 400 or path == "reset", path
    assert "Traceback" not in "".join(capfd.readouterr()) + caplog.text


def test_values_that_a_component_never_sends_are_a_422(window, pages, owner, capfd):
    statuses = set[int]()
    for index, function in list(owner_events(pages).items())[:40]:
        data = [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}} for _ in function.inputs]
        body = {"data": data, "fn_index": index, "session_hash": "a"}
        if data and not function.queue:
            statuses.add(owner.post("/gradio_api/run/predict", json=body).status_code)
    assert all(status < 500 for status in statuses)
    assert "Traceback" not in "".join(capfd.readouterr())


def owner_events(pages) -> dict:
    """The events of the page that an application serves."""
    middleware = next(m for m in pages.user_middleware if "page" in m.kwargs)
    return middleware.kwargs["page"].fns


@pytest.mark.parametrize("path", ["/assets/" + "a" * 5000, "/gradio_api/file=" + "a" * 5000, "/documents/%00/1"])
def test_names_that_no_file_has_are_refused(owner, path):
    assert 400 <= owner.get(path).status_code < 500


@pytest.mark.parametrize("kind", ["multipart/form-data", f"multipart/form-data; boundary={'b' * 5000}"])
def test_a_broken_upload_is_refused(window, owner, kind):
    before = disk(window.settings.home)
    assert 400 <= owner.post("/gradio_api/upload", content=b"x", headers={"content-type": kind}).status_code < 500
    assert disk(window.settings.home) == before


@pytest.mark.parametrize(
    "body", [DEEP, b"\xff", "null", "[]", '{"messages": ' + "[" * 5000 + "]" * 5000 + "}"], ids=range(5)
)
def test_what_the_api_cannot_read_is_a_400(tmp_path, body):
    server = OpenAIServer(load_settings(home=tmp_path / "home", embedder="none"), 1)
    try:
        assert TestClient(server.app()).post("/v1/chat/completions", content=body).status_code == 400
    finally:
        server.close()
