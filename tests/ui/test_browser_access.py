"""The gate of the window: who is let in, from where, to what; and what every response says."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from localctx.serving.http import LOOPBACK, access_key
from localctx.settings import load_settings
from localctx.ui.app import mount
from localctx.ui.browser_access import ALLOWED_PATHS, HEADERS, REMOTE_FILES, BrowserAccess
from localctx.ui.window import AppWindow

pytestmark = pytest.mark.slow

HOST = "127.0.0.1:7860"
HERE = f"http://{HOST}"
UPLOAD = "/gradio_api/upload"


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("gate") / "home"
        patch.setenv("GRADIO_TEMP_DIR", str(home / "uploads"))
        window = AppWindow(load_settings(home=home))
        with window.store():
            yield window
        window.close()


@pytest.fixture(scope="module")
def app(window):
    return mount(window, "127.0.0.1", 7860)


@pytest.fixture
def stranger(app, window):
    """A client without the key."""
    return TestClient(
        BrowserAccess(app, LOOPBACK, access_key(window.settings.home), 7860), HERE, follow_redirects=False
    )


@pytest.fixture
def owner(stranger, window):
    """A client that came with the key once."""
    stranger.get("/", params={"key": access_key(window.settings.home)})
    return stranger


def routes(app) -> list[str]:
    """Every path of the application, with something for each of its parameters."""
    found, left = [], list(app.routes)
    while left:
        route = left.pop()
        left += getattr(getattr(route, "original_router", route), "routes", None) or []
        found += [re.sub(r"{[^}]*}", "x", route.path)] if getattr(route, "path", "") else []
    assert len(found) > 50
    return found


def disk(window) -> dict[Path, int]:
    """Every file of the data folder, with its size."""
    return {p: p.stat().st_size for p in window.settings.home.rglob("*") if p.is_file()}


# Names (DNS rebinding)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:7860", "localhost", "localhost:1", "[::1]", "[::1]:7860"])
def test_this_machine_is_a_name_of_the_window(owner, host):
    cookies = {"cookie": f"localctx-7860={owner.cookies['localctx-7860']}"}
    assert owner.get("/", headers={"host": host, **cookies}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:7860", "127.evil.com", "127.0.0.1.evil.com", "localhost.evil.com", ""),
        *(
            "a/?x=",
            "127.0.0.1/?x=",
            "127.0.0.1:7860@evil.com",
            "evil.com#127.0.0.1",
            "[::1].evil.com",
            "::1",
            "0.0.0.0",
        ),
        *("127.0.0.1:x", "127.0.0.1:", "127.0.0.2", "2130706433", "127.0.0.1 ", "LOCALHOST.", "127.0.0.1,evil.com"),
    ],
)
def test_no_other_name_is(owner, host):
    for path, method in itertools.product(ALLOWED_PATHS, ("GET", "POST")):
        assert owner.request(method, path, headers={"host": host}).status_code == 400, path


# Sites (forged requests)

METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BODIES = {
    "none": {},
    "form": {"data": {"a": "b"}},
    "text": {"content": '{"data": []}', "headers": {"content-type": "text/plain"}},
    "json": {"json": {"data": []}},
    "multipart": {"files": {"files": ("a.txt", b"evil")}},
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    "foreign",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8000"},
        {"origin": "http://localhost:7860"},
        {"origin": "https://127.0.0.1:7860"},
        {"origin": f"{HERE}.evil.com"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "origin": HERE},
    ],
    ids=str,
)
def test_another_site_changes_nothing_with_the_owners_cookie(app, window, owner, foreign, body):
    before, how = disk(window), dict(BODIES[body])
    headers = how.pop("headers", {}) | foreign
    paths = routes(app) if body == "none" else ("/", UPLOAD, "/gradio_api/queue/join", "/gradio_api/run/predict")
    for path, method in itertools.product(paths, ("POST", "OPTIONS") if body == "none" else METHODS):
        response = owner.request(method, path, headers=headers, **how)
        assert response.status_code == 403, (method, path)
        assert "access-control-allow-origin" not in response.headers
    assert disk(window) == before


def test_another_site_reads_nothing_but_may_link_to_the_page(app, owner):
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert owner.get("/", headers=foreign).status_code == 200
    assert {owner.get(path, headers=foreign).status_code for path in routes(app) if path != "/"} == {403}


# The key


def test_nobody_without_the_key_gets_anything(app, window, stranger):
    before = disk(window)
    for path, method in itertools.product(routes(app), ("GET", "HEAD", "POST", "OPTIONS")):
        assert stranger.request(method, path).status_code == 403, path
        assert stranger.request(method, path, params={"key": "wrong"}).status_code == 403, path
        assert stranger.request(method, path, headers={"cookie": "localctx-7860=wrong"}).status_code == 403, path
        assert stranger.request(method, path, headers={"cookie": "localctx-7860="}).status_code == 403, path
    assert disk(window) == before


def test_who_has_no_key_reads_what_to_do(stranger):
    refused = stranger.get("/")
    assert refused.headers["content-type"].startswith("text/html")
    assert "Open the whole address that <code>localctx ui</code> printed" in refused.text
    assert {name: refused.headers[name] for name in HEADERS} == HEADERS


def test_the_key_becomes_a_cookie_and_leaves_the_address(window, stranger):
    response = stranger.get("/", params={"key": access_key(window.settings.home), "chat": "a b"})
    assert (response.status_code, response.headers["location"]) == (303, "/?chat=a+b")
    assert {"HttpOnly", "SameSite=lax"} <= set(response.headers["set-cookie"].split("; "))
    assert stranger.get("/").status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "/assets/x"])
def test_the_key_leads_nowhere_else(window, stranger, path):
    response = stranger.get(f"{HERE}{path}", params={"key": access_key(window.settings.home)})
    assert response.headers["location"] == "/"


def test_the_key_is_its_owners_alone(window):
    assert (window.settings.home / "ui.key").stat().st_mode & 0o777 == 0o600
    assert len(access_key(window.settings.home)) >= 32


# What is served


@pytest.mark.parametrize("path", ["/", "/theme.css", "/config", "/assets/none.js", "/gradio_api/info"])
def test_every_response_is_told_to_load_nothing_from_elsewhere(owner, path):
    said = owner.get(path).headers
    policy = said["content-security-policy"]
    assert {k: said.get(k) for k in HEADERS} == HEADERS
    assert "http:" not in policy
    assert "*" not in policy
    scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert "unsafe-inline" not in scripts
    assert ("sha256-" in scripts) == (path == "/")


def test_the_page_names_no_other_host(owner):
    page = owner.get("/").text
    kinds = "stylesheet|preload|icon|modulepreload|preconnect"
    loading = rf"""<(?:script|img|iframe|link rel="(?:{kinds})")[^>]*?(?:src|href)=["'](https?:[^"']*)"""
    loaded = re.findall(loading, page)
    assert [url for url in loaded if not url.startswith(HERE)] == []


def test_only_what_the_page_uses_is_there(app, owner):
    unused = [p for p in routes(app) if re.search("vibe|proxy|run-history|monitoring|openapi|deep_link|mcp|stream", p)]
    assert len(unused) > 8
    assert {owner.get(path).status_code for path in unused} == {404}


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "https://example.com/x"])
def test_no_other_server_is_asked_for_a_file(owner, url):
    assert REMOTE_FILES
    assert owner.get(f"/gradio_api/file={url}").status_code == 404
    assert owner.get(f"/gradio_api/proxy={url}").status_code == 404


@pytest.mark.parametrize("name", ["ui.key", "library.db", "settings.toml", "../home/ui.key"])
def test_files_of_the_data_folder_are_not_served(window, owner, name):
    home = window.settings.home
    (home / "settings.toml").touch()
    (home / "library.db").touch()
    paths = [f"{home}/{name}", f"{home}/uploads/../{name}", f"{home}/uploads/%2e%2e/{name}", name]
    for path in [*paths, f"{home}/./{name}", f"/{home}/{name}", f"file://{home}/{name}", f"C:\\{name}", "/etc/passwd"]:
        for start in (
            "/gradio_api/file=",
            "/gradio_api/file/",
            "/static/",
            "/assets/",
            "/static/..%2f",
            "/assets/..%2f",
        ):
            assert owner.get(f"{start}{path}").status_code in (400, 403, 404, 422), (start, path)


@pytest.mark.parametrize(
    "name", ["../evil.txt", "/etc/evil", "a/../../b.txt", "..\\b.txt", "C:\\b.txt", ".", "x" * 300]
)
def test_an_upload_stays_in_its_folder(window, owner, name):
    before = disk(window)
    response = owner.post(UPLOAD, files={"files": (name, b"text")}, headers={"origin": HERE})
    uploads = window.settings.home / "uploads"
    assert all(uploads in path.resolve().parents for path in disk(window).keys() - before.keys())
    if response.status_code == 200:
        assert all(uploads in Path(path).resolve().parents for path in response.json())


def test_what_was_uploaded_runs_no_script(owner):
    (path,) = owner.post(UPLOAD, files={"files": ("a.html", b"<script>alert(1)</script>")}).json()
    response = owner.get(f"/gradio_api/file={path}")
    assert response.status_code == 200
    assert "unsafe-inline" not in response.headers["content-security-policy"].split("style-src")[0]
    assert response.headers["content-disposition"].startswith("attachment")


def test_an_upload_that_is_too_large_is_refused(window, monkeypatch):
    monkeypatch.setattr("localctx.ui.uploads.MAX_UPLOAD", "1kb")
    key = access_key(window.settings.home)
    client = TestClient(BrowserAccess(mount(window, "127.0.0.1", 7860), LOOPBACK, key, 7860), HERE)
    client.get("/", params={"key": key})
    before = disk(window)
    assert client.post(UPLOAD, files={"files": ("a.txt", b"x" * 5000)}).status_code == 413
    assert disk(window) == before


def test_a_websocket_is_refused(owner):
    with pytest.raises((WebSocketDenialResponse, WebSocketDisconnect)), owner.websocket_connect("/"):
        pytest.fail("it was let in")


# Starting


def test_the_page_comes_before_torch():
    """Importing it takes seconds, which who opens the window does not wait for."""
    look = "import sys, localctx.ui.app; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, env=dict(os.environ), check=True
    )
    assert done.stdout == "False\n"
