"""The endpoint for commands: who may ask, what is streamed, what a cancel and a client that leaves do."""

import json
import threading
import time

import httpx
import pytest
from ask_in_process import session
from ask_servers import KEY, ask_server, comparable
from clock import seconds_since

from localctx.engine.event_json import event_from_line
from localctx.engine.events import Done, Planned, Token
from localctx.errors import Cancelled, TooLong, UserError
from localctx.serving import ask_endpoint
from localctx.serving.ask_request import ASK_PATH, CANCEL_PATH, AskRequest
from localctx.settings import with_changes

pytestmark = pytest.mark.process

QUESTION = "How long is river 3?"


@pytest.fixture(scope="module")
def server(tmp_path_factory, sharp_model):
    with ask_server(tmp_path_factory.mktemp("asked"), sharp_model, max_tokens=24, dtype="f32") as server:
        yield server


@pytest.fixture
def client(server):
    headers = {"authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
def request_for(server, document):
    """``request_for(**settings)``: the body of a question on the document under the server's settings and these."""

    def request_for(question: str = QUESTION, sources=(str(document),), how=None, **settings) -> dict:
        asked = AskRequest.of(question, sources, with_changes(server.settings, settings), **(how or {}))
        return asked.to_json()

    return request_for


def events_of(reply: httpx.Response) -> list:
    assert reply.status_code == 200, reply.text
    return [event_from_line(line) for line in reply.text.splitlines() if line.strip()]


# Answers


def test_the_events_are_those_of_a_session(server, client, request_for, tmp_path, sharp_model, document):
    events = events_of(client.post(ASK_PATH, json=request_for(how={"persist": False})))
    with session(tmp_path / "home", sharp_model, max_tokens=24, dtype="f32") as s:
        alone = list(s.stream(QUESTION, [str(document)], persist=False))
    assert [e.id for e in events if isinstance(e, Token)] == [e.id for e in alone if isinstance(e, Token)]
    assert len([e for e in events if isinstance(e, Planned)]) == 1
    assert comparable(events[-1].report.to_json()) == comparable(alone[-1].report.to_json())


def test_settings_of_the_question_are_its_own(server, client, request_for):
    def answer(**settings) -> dict:
        return events_of(client.post(ASK_PATH, json=request_for(**settings)))[-1].report.to_json()

    assert answer(max_tokens=5)["tokens"]["generated"] == 5
    assert answer()["tokens"]["generated"] == 24, "the next question has the server's again"
    one, same, other = (answer(temperature=1, seed=seed) for seed in (5, 5, 6))
    assert one["answer"] == same["answer"] != other["answer"]


def test_pages_are_kept_for_the_next_question(client, request_for, tmp_path):
    (tmp_path / "lakes.txt").write_text("".join(f"Lake {i} is {i * 3} m deep.\n" for i in range(40)))
    body = {"sources": (str(tmp_path / "lakes.txt"),)}
    first, second = (events_of(client.post(ASK_PATH, json=request_for(**body)))[-1].report.tokens for _ in range(2))
    assert first.reused == 0
    assert second.reused > 500


def test_questions_at_the_same_time_are_answered_as_alone(client, request_for):
    bodies = [request_for(question) for question in (QUESTION, "And river 7?")]
    alone = [events_of(client.post(ASK_PATH, json={**body, "id": f"alone {i}"})) for i, body in enumerate(bodies)]
    together: list = [None, None]

    def ask(i: int) -> None:
        together[i] = events_of(client.post(ASK_PATH, json=bodies[i]))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [e[-1].report.answer for e in together] == [e[-1].report.answer for e in alone]


# Refusals


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Basic {KEY}"}, 401),
        ({"authorization": f"Bearer {KEY}", "host": "evil.example"}, 421),
        ({"authorization": f"Bearer {KEY}", "host": "127.0.0.1.evil.example:80"}, 421),
        ({"authorization": f"Bearer {KEY}", "origin": "http://127.0.0.1"}, 403),
        ({"authorization": f"Bearer {KEY}", "sec-fetch-site": "same-origin"}, 403),
        ({"authorization": f"Bearer {KEY}", "x-forwarded-for": "192.0.2.7"}, 403),
        ({"authorization": f"bearer {KEY}", "host": "localhost:1"}, 200),
    ],
)
@pytest.mark.parametrize("path", [ASK_PATH, CANCEL_PATH])
def test_who_may_ask(server, request_for, headers, status, path):
    reply = httpx.post(f"{server.url}{path}", json=request_for(max_tokens=1), headers=headers, trust_env=False)
    assert reply.status_code == status
    assert KEY not in reply.text
    assert not any(name.startswith("access-control") for name in reply.headers), "pages of other sites can read it"


def test_other_paths_are_the_applications(server, client):
    assert client.get("/v1/models").text == "another application"
    assert client.get("/localctx/other").status_code == 404
    assert client.get(ASK_PATH).status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        {"question": 3},
        {"sources": "a"},
        {"sources": [3]},
        {"settings": []},
        {"persist": "yes"},
        {"unheard": 1},
        {"settings": {"max_tokens": 0}},
    ],
)
def test_a_request_that_is_none_is_refused(client, request_for, change):
    reply = client.post(ASK_PATH, json={**request_for(), **change})
    assert reply.status_code in (400, 409), reply.text
    assert reply.json()["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"null", b'{"question": "x"}'])
def test_a_body_that_is_no_request_is_refused(client, body):
    assert client.post(ASK_PATH, content=body).status_code == 400
    assert client.post(CANCEL_PATH, content=body).json() == {"cancelled": False}


@pytest.mark.parametrize("setting", [{"model": "other"}, {"kv": "int4"}, {"dtype": "bf16"}, {"chunk": 128}])
def test_other_settings_of_the_engine_are_refused_and_named(client, request_for, setting):
    reply = client.post(ASK_PATH, json=request_for(**setting))
    assert reply.status_code == 409
    assert reply.json()["error"] == f"the server has a different {next(iter(setting))}"


def test_the_same_name_in_another_folder_is_another_model(client, request_for):
    body = request_for()
    reply = client.post(ASK_PATH, json={**body, "places": {**body["places"], "model": "/elsewhere/model"}})
    assert (reply.status_code, reply.json()["error"]) == (409, "the server has a different model")


def test_a_relative_path_is_not_looked_for_here(client, request_for, monkeypatch, tmp_path):
    (tmp_path / "here.txt").write_text("River 3 is here.")
    monkeypatch.chdir(tmp_path)  # that of the server, too
    with pytest.raises(UserError, match=r"here.txt does not exist"):
        events_of(client.post(ASK_PATH, json={**request_for(), "sources": ["here.txt"]}))


def test_a_document_is_named_by_its_id(server, client, request_for, document):
    from localctx.library.read_document import read_document

    events_of(client.post(ASK_PATH, json=request_for()))  # which stores it
    row = read_document(str(document)).row
    found = events_of(client.post(ASK_PATH, json=request_for(sources=(row.id,))))[-1].report
    assert found.tokens.reused > 500


def test_settings_that_change_while_a_question_waits_are_seen(server, client, request_for):
    found: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: found.append(client.post(ASK_PATH, json=request_for())))
    with server.worker.drained():
        thread.start()
        while not server.endpoint._running:
            time.sleep(0.01)
        server.worker.change_settings(with_changes(server.settings, {"kv": "int4"}))
    thread.join()
    server.worker.change_settings(server.settings)
    with pytest.raises(UserError, match="the server has a different kv"):
        events_of(found[0])


# Errors


def test_an_error_of_the_answer_is_a_line(client, request_for, tmp_path):
    (tmp_path / "long.txt").write_text("x" * 5000)
    with pytest.raises(TooLong, match="reads at most 4,096"):
        events_of(client.post(ASK_PATH, json=request_for(sources=(str(tmp_path / "long.txt"),), mode="full")))


def test_a_fault_of_ours_is_a_line_without_its_words(client, request_for, monkeypatch, caplog):
    def fail(asked):
        def job(session):
            raise RuntimeError("secret words")
            yield

        return job

    monkeypatch.setattr(ask_endpoint, "_job", fail)
    with pytest.raises(UserError, match="something in localctx failed"):
        events_of(client.post(ASK_PATH, json=request_for()))
    assert "secret words" in caplog.text


# Cancel


def long_request(request_for) -> dict:
    return request_for("x" * 1500, max_tokens=2000)


def test_a_cancel_ends_the_answer_with_what_there_is(client, request_for):
    body = long_request(request_for)
    with client.stream("POST", ASK_PATH, json=body) as reply:
        lines = (line for line in reply.iter_lines() if line.strip())
        while not isinstance(event_from_line(next(lines)), Token):
            pass
        begun = time.monotonic()
        assert client.post(CANCEL_PATH, json={"id": body["id"]}).json() == {"cancelled": True}
        *_, last = lines
    done = event_from_line(last)
    assert isinstance(done, Done)
    assert done.report.stopped == "cancelled"
    assert seconds_since(begun) < 2
    assert client.post(CANCEL_PATH, json={"id": body["id"]}).json() == {"cancelled": False}, "it has ended"


def test_who_hangs_up_cancels(server, client, request_for):
    with client.stream("POST", ASK_PATH, json=long_request(request_for)) as reply:
        for line, _ in zip(reply.iter_lines(), range(8), strict=False):
            assert "error" not in json.loads(line or "{}")
    begun = time.monotonic()
    while server.worker.busy or server.endpoint._running:
        assert seconds_since(begun) < 2
        time.sleep(0.01)


def test_one_id_is_one_question(server, client, request_for):
    body = request_for()
    with server.worker.drained(), client.stream("POST", ASK_PATH, json=body) as reply:
        next(reply.iter_lines())
        assert client.post(ASK_PATH, json=body).status_code == 503


def test_while_nothing_happens_the_server_says_that_it_works(server, client, request_for, monkeypatch):
    monkeypatch.setattr(ask_endpoint, "SIGN_OF_LIFE", 0.1)
    with server.worker.drained(), client.stream("POST", ASK_PATH, json=request_for()) as reply:
        lines = reply.iter_lines()
        assert [next(lines) for _ in range(2)] == ["", ""]


def test_a_server_that_closes_says_so(server, client, request_for):
    with client.stream("POST", ASK_PATH, json=long_request(request_for)) as reply:
        lines = (line for line in reply.iter_lines() if line.strip())
        next(lines)
        server.stopping.set()
        try:
            *_, last = lines
        finally:
            server.stopping.clear()
    with pytest.raises(UserError, match="the server is closing; ask again") as raised:
        event_from_line(last)
    assert not isinstance(raised.value, Cancelled)
