"""``ask`` answered by an open ``serve``: the same words as alone, also after a restart, a kill, and Ctrl-C."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ask_in_process import PLAIN
from ask_servers import ask_server, comparable
from clock import seconds_since
from processes import opened

from localctx.serving.open_servers import FOLDER, open_servers

pytestmark = pytest.mark.slow

QUESTION = "How long is river 3?"
FLAGS = {**PLAIN, "max_tokens": 12, "dtype": "f32"}


@pytest.fixture(autouse=True)
def environment(home, monkeypatch, sharp_model):
    """One model and small answers for the server and for the commands."""
    for name, value in {**FLAGS, "model": sharp_model}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))


@contextmanager
def serving(home: Path, *arguments: object) -> Iterator[subprocess.Popen]:
    """The command ``serve``, once it is registered."""
    line = [sys.executable, "-m", "localctx", "serve", "--port", "0", *map(str, arguments)]
    with opened(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("localctx is at ")
        assert open_servers(home)
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(30)


@pytest.fixture
def asked(localctx, document) -> Callable[..., dict]:
    """``asked(*flags)``: the report of a question on the document, by the real command."""

    def asked(*flags: str) -> dict:
        done = localctx("ask", document, QUESTION, "--json", *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return asked


def test_a_server_answers_as_the_command_would_and_when_it_ends_the_command_does(home, localctx, document, asked):
    localctx("prepare", document)  # so that all find the same pages
    alone = asked()
    assert alone["answered_by"] == "command"
    said = localctx("ask", document, QUESTION)
    with serving(home):
        there = asked()
        (server,) = open_servers(home)
        assert there["answered_by"] == server.url
        assert comparable(there) == comparable(alone)
        assert there.keys() == alone.keys()
        assert there["seconds"]["load"] == 0, "the server has the model"
        found = localctx("ask", document, QUESTION)
        assert (found.stdout, found.stderr, found.returncode) == (said.stdout, said.stderr, 0)
        assert asked("--alone")["answered_by"] == "command"
        assert asked("--chunk", "32")["answered_by"] == "command", "this is another engine's setting"
        assert asked("--max-tokens", "3")["tokens"]["generated"] == 3
    assert list((home / FOLDER).iterdir()) == []
    assert asked()["answered_by"] == "command"
    with serving(home):
        restarted = asked()
        assert restarted["answered_by"] == open_servers(home)[0].url
        assert comparable(restarted) == comparable(alone)


def test_a_server_that_was_killed_is_not_asked(home, asked):
    with serving(home) as process:
        process.kill()
        process.wait(10)
        assert len(list((home / FOLDER).iterdir())) == 1
        assert asked()["answered_by"] == "command"
    assert list((home / FOLDER).iterdir()) == []


def long_question(document: Path) -> list[str]:
    return ["ask", str(document), "x" * 1500, "--max-tokens", "2000", "--no-keep"]


@contextmanager
def asking(*arguments: str) -> Iterator[subprocess.Popen]:
    """The command, once it has printed the beginning of its answer."""
    line = [sys.executable, "-m", "localctx", *arguments]
    with opened(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert os.read(process.stdout.fileno(), 1)
        yield process


def test_a_server_killed_in_the_middle_is_one_line_with_a_remedy(home, document):
    with serving(home) as server, asking(*long_question(document)) as process:
        server.kill()
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.decode().count("\n") == 1
    assert "ended before its answer; ask again; --alone asks no server" in errors.decode()


def test_a_server_that_is_stopped_in_the_middle_says_so(home, document):
    with serving(home) as server, asking(*long_question(document)) as process:
        server.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.decode() == "localctx: the server is closing; ask again\n"


def test_ctrl_c_cancels_on_the_server_and_prints_what_there_is(home, sharp_model, document):
    with ask_server(home, sharp_model, max_tokens=12, dtype="f32") as server:
        with asking(*long_question(document)) as process:
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=30)
        assert seconds_since(begun) < 2
        assert process.returncode == 130
        assert errors == b""
        assert rest.endswith(b"\n"), "the line is ended as it is alone"
        assert not server.worker.busy


def test_a_command_that_is_killed_is_cancelled_on_the_server(home, sharp_model, document):
    with ask_server(home, sharp_model, max_tokens=12, dtype="f32") as server:
        with asking(*long_question(document)) as process:
            assert server.worker.busy
            process.kill()
            process.wait(10)
        begun = time.monotonic()
        while server.worker.busy:
            assert seconds_since(begun) < 2
            time.sleep(0.01)


@pytest.fixture
def server(home, sharp_model):
    with ask_server(home, sharp_model, max_tokens=12, dtype="f32") as server:
        yield server


def test_errors_are_those_of_the_command(server, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("ask", "nothing.txt", "Why?")
    assert (done.returncode, done.stderr) == (
        1,
        "localctx: nothing.txt does not exist; check the name and the folder\n",
    )
    (tmp_path / "empty.txt").touch()
    assert run("ask", "empty.txt", "Why?").stderr == "localctx: empty.txt is empty; give a file with text in it\n"


def test_standard_input_is_read_by_the_command(server, run):
    done = run("ask", "-", QUESTION, "--json", stdin=b"River 3 is 111 km long.\n")
    assert json.loads(done.stdout)["answered_by"] == "command"


def test_paths_are_those_of_the_command(server, run, document, monkeypatch):
    monkeypatch.chdir(document.parent)
    report = json.loads(run("ask", document.name, QUESTION, "--json").stdout)
    assert report["answered_by"] == server.url


def test_the_library_is_asked_there(server, run, document):
    assert run("library", "add", document).returncode == 0
    there, alone = (json.loads(run("ask", "--library", QUESTION, "--json", *how).stdout) for how in ([], ["--alone"]))
    assert there["answered_by"] == server.url
    assert there["answer"] == alone["answer"]
    assert there["passages"] == alone["passages"]


def test_why_a_server_is_not_asked_is_told_on_a_terminal_alone(server, document):
    line = [sys.executable, "-m", "localctx", "ask", str(document), QUESTION, "--kv", "f32"]
    assert b"is not asked" not in subprocess.run(line, capture_output=True, check=True).stderr
    ours, its = pty.openpty()
    with opened(line, stdout=subprocess.DEVNULL, stderr=its) as process:
        os.close(its)
        said = b""
        with contextlib.suppress(OSError):  # it is closed
            while part := os.read(ours, 4096):
                said += part
        process.wait(60)
    os.close(ours)
    assert f"{server.url} is not asked: the server has a different kv".encode() in said
