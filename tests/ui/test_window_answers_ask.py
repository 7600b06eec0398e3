"""``ask`` answered by the window that is open in the same data folder, by the real commands."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx
import pytest
from ask_in_process import PLAIN
from ask_servers import KEY, comparable
from fastapi import FastAPI
from processes import opened
from starlette.testclient import TestClient

from localctx.serving.ask_endpoint import AskEndpoint
from localctx.serving.ask_request import ASK_PATH, CANCEL_PATH, AskRequest
from localctx.serving.open_servers import open_servers

pytestmark = pytest.mark.slow

QUESTION = "How long is river 3?"


@pytest.fixture
def window_process(home, monkeypatch, sharp_model) -> Iterator[subprocess.Popen]:
    """The command ``ui`` without a browser, and its address."""
    for name, value in {**PLAIN, "max_tokens": 12, "dtype": "f32", "model": sharp_model}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    line = [sys.executable, "-m", "localctx", "ui", "--port", "0", "--no-browser"]
    with opened(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline().startswith("localctx is at ")
        yield process
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert open_servers(home) == []


def test_a_window_answers_as_the_command_would(window_process, home, localctx, document):
    (server,) = open_servers(home)
    localctx("prepare", document)
    reports = []
    for how in ("--alone", "-q", "-q"):
        done = localctx("ask", document, QUESTION, "--json", how)
        assert done.returncode == 0, done.stderr
        reports.append(json.loads(done.stdout))
    assert [r["answered_by"] for r in reports] == ["command", server.url, server.url]
    assert comparable(reports[0]) == comparable(reports[1]) == comparable(reports[2])
    assert reports[2]["seconds"]["load"] == 0, "the window keeps the model"


def test_the_key_of_commands_opens_nothing_else_of_the_window_and_its_cookie_asks_nothing(window_process, home):
    (server,) = open_servers(home)
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        assert client.get("/", headers={"authorization": f"Bearer {server.key}"}).status_code == 403
        assert client.get("/", params={"key": server.key}).status_code == 403
        key = (home / "ui.key").read_text().strip()
        assert client.get("/", params={"key": key}, follow_redirects=True).status_code == 200
        for path in (ASK_PATH, CANCEL_PATH):
            assert client.post(path, json={}).status_code == 401
            assert client.post(path, json={}, headers={"authorization": f"Bearer {key}"}).status_code == 401


def test_settings_that_the_window_changed_are_those_it_answers_under(window, document):
    endpoint = AskEndpoint(FastAPI(), window.answer_worker, lambda: window.settings, KEY, threading.Event())
    with TestClient(endpoint, "http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        client.headers["authorization"] = f"Bearer {KEY}"
        before = AskRequest.of(QUESTION, [str(document)], window.settings).to_json()
        assert client.post(ASK_PATH, json=before).status_code == 200
        window.save_settings({"kv": "int8"})
        assert client.post(ASK_PATH, json=before).json() == {"error": "the server has a different kv"}
        after = AskRequest.of(QUESTION, [str(document)], window.settings).to_json()
        assert client.post(ASK_PATH, json=after).status_code == 200
