"""The client for open servers: what it sends and shows, and when the command answers by itself."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from localctx.engine.event_json import error_to_line, event_to_line
from localctx.engine.events import Note, Progress, Token
from localctx.errors import Cancelled, DocumentError, UserError
from localctx.serving import ask_client
from localctx.serving.ask_client import ask_open_server, given_paths
from localctx.serving.ask_request import AskRequest
from localctx.serving.open_servers import registered
from localctx.settings import load_settings

pytestmark = pytest.mark.slow

Answer = Callable[[BaseHTTPRequestHandler], None]


class Handler(BaseHTTPRequestHandler):
    answer: Answer
    asked: list[tuple[str, dict, str]]

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.asked.append((self.path, json.loads(body), self.headers["authorization"]))
        if self.path.endswith("cancel"):
            send(self, json.dumps({"cancelled": True}))
        else:
            type(self).answer(self)


def send(handler: BaseHTTPRequestHandler, text: str, status: int = 200, length: int | None = None) -> None:
    handler.send_response(status)
    handler.send_header("content-length", str(len(text) if length is None else length))
    handler.end_headers()
    handler.wfile.write(text.encode())


@contextmanager
def fake_server(home, answer: Answer) -> Iterator[list]:
    """A registered server that answers so; yields what it was asked."""
    kind = type("FakeHandler", (Handler,), {"answer": staticmethod(answer), "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with registered(home, "127.0.0.1", server.server_port, "key"):
            yield kind.asked
        server.shutdown()
        thread.join()


def saying(*lines: str, status: int = 200, more: int = 0) -> Answer:
    """An answer of these lines; the server promises ``more`` bytes, and hangs up."""
    text = "".join(lines)
    return lambda handler: send(handler, text, status, len(text) + more)


@pytest.fixture
def settings(home):
    return load_settings(home=home)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def ask(home, settings, told):
    """``ask(*sources)``: the answer of an open server, or None."""

    def ask(*sources: str):
        return ask_open_server(AskRequest.of("Why?", sources, settings), given_paths(list(sources)), home, told.append)

    return ask


NOTE, TOKEN = event_to_line(Note("hm")), event_to_line(Token("a", 1))


def test_the_request_has_absolute_paths_and_every_setting_an_answer_depends_on(
    home, ask, settings, tmp_path, monkeypatch
):
    (tmp_path / "a.txt").touch()
    monkeypatch.chdir(tmp_path)
    with fake_server(home, saying(NOTE)) as asked:
        assert ask("a.txt", "0123abcd")
    ((path, body, key),) = asked
    assert (path, key) == ("/localctx/ask", "Bearer key")
    assert (body["question"], body["sources"]) == ("Why?", [str(tmp_path / "a.txt"), "0123abcd"])
    assert body["settings"]["model"] == settings.model
    assert {"home", "appearance", "read_ahead", "summaries"}.isdisjoint(body["settings"])
    assert AskRequest.parse(body).adapted(settings) == settings


def test_paths_are_shown_as_the_user_wrote_them(home, ask, tmp_path, monkeypatch):
    (tmp_path / "a.pdf").touch()
    monkeypatch.chdir(tmp_path)
    there = str(tmp_path / "a.pdf")
    lines = event_to_line(Progress(f"pages of {there}", 1, 2)), error_to_line(DocumentError(f"{there} is bad", "mend"))
    with fake_server(home, saying(*lines)):
        events = ask("a.pdf").events()
        assert next(events).phase == "pages of a.pdf"
        with pytest.raises(DocumentError, match=r"^a\.pdf is bad; mend$"):
            next(events)


def test_signs_of_life_are_no_events(home, ask):
    with fake_server(home, saying("\n", "\n", NOTE, "\n", TOKEN)):
        events = ask().events()
        assert [next(events), next(events)] == [Note("hm"), Token("a", 1)]


@pytest.mark.parametrize(
    "answer",
    [
        saying(),
        saying("{"),
        saying("\n\n"),
        saying('{"event": "Unheard"}\n'),
        saying("no", status=500),
        saying('{"error": "the key is wrong"}', status=401),
        saying(NOTE[:9], more=9),
        saying(error_to_line(DocumentError("it is empty", "mend it"))),
        saying(error_to_line(Cancelled())),
        lambda handler: handler.wfile.write(b"SSH-2.0\r\n"),
        lambda handler: handler.connection.close(),
    ],
)
def test_any_failure_before_the_first_event_leaves_the_question_to_the_command(home, ask, answer):
    with fake_server(home, answer):
        assert ask() is None


def test_nothing_listens(home, ask):
    with registered(home, "127.0.0.1", 9, "key"):
        assert ask() is None


def test_a_server_that_hangs_is_left(home, ask, monkeypatch):
    monkeypatch.setattr(ask_client, "PATIENCE", 0.1)
    waiting = threading.Event()
    with fake_server(home, lambda handler: waiting.wait(30)):
        assert ask() is None
        waiting.set()


def test_other_settings_are_told_and_the_next_server_is_asked(home, ask, told):
    refusal = json.dumps({"error": "the server has a different model"})
    with fake_server(home, saying(NOTE)), fake_server(home, saying(refusal, status=409)):
        assert next(ask().events()) == Note("hm")
    (line,) = told
    assert line.endswith("is not asked: the server has a different model")


def test_a_server_that_ends_in_the_middle_is_one_line_with_a_remedy(home, ask):
    with fake_server(home, saying(NOTE, TOKEN, more=50)):
        events = ask().events()
        assert [next(events), next(events)] == [Note("hm"), Token("a", 1)]
        with pytest.raises(UserError, match=r"ended before its answer; ask again; --alone asks no server"):
            next(events)


def test_a_cancel_is_sent_once(home, ask):
    with fake_server(home, saying(NOTE)) as asked:
        answer = ask()
        assert answer.cancel()
        assert not answer.cancel(), "a second one ends the command"
        (first, _), second = asked[0][:2], asked[1]
        assert second == ("/localctx/cancel", {"id": asked[0][1]["id"]}, "Bearer key")
    assert first == "/localctx/ask"


def test_a_cancel_that_nobody_hears_is_told(home, ask):
    with fake_server(home, saying(NOTE)):
        answer = ask()
    assert not answer.cancel()


def test_nothing_that_computes_is_imported():
    heavy = ["torch", "numpy", "transformers", "gradio", "starlette", "uvicorn", "sqlite_utils", "numba"]
    code = f"""
import sys
import localctx.cli, localctx.cli.terminal, localctx.serving.ask_client
from localctx.settings import load_settings
from localctx.serving.ask_request import AskRequest
AskRequest.of("Why?", [], load_settings())
print([name for name in {heavy} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
