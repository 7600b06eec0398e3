"""``serve``: OpenAI's chat completions by the model here; who may ask, what is answered, and who has gone."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress

import httpx
import pytest
from ask_in_process import PLAIN, session
from batch_texts import counts, long_text, write_texts
from clock import seconds_since
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tiny_models import KEPT

from localctx.batch.remote_server import KEY
from localctx.engine.events import Done
from localctx.engine.prompt_wording import ASK, content
from localctx.errors import UsageError
from localctx.models.decoder.local_model import LocalModel
from localctx.serving.answer_stream import StopTexts
from localctx.serving.api_error import ApiError
from localctx.serving.openai_protocol import CompletionRequest
from localctx.serving.request_body import parse_json
from localctx.serving.worker import EngineWorker
from localctx.settings import Settings
from localctx.shape import PAGE

pytestmark = pytest.mark.process

ASKED = ("How long is river 3?", "And river 7?", "Which is longest?")


def asking(text: str, **more) -> dict:
    return {"messages": [{"role": "user", "content": text}], **more}


def streamed(client, body: dict) -> tuple[str, list[dict]]:
    """The text of a streamed answer, and all its pieces."""
    with client.stream("POST", "chat/completions", json={**body, "stream": True}) as reply:
        assert reply.status_code == 200, reply.read()
        lines = [line for line in reply.iter_lines() if line.startswith("data: ")]
    assert lines.pop() == "data: [DONE]"
    pieces = [json.loads(line[6:]) for line in lines]
    return "".join(c["delta"].get("content", "") for p in pieces for c in p["choices"]), pieces


def prompt_of(document, question: str) -> str:
    return content([document.read_text()], question, ASK)


# Answers


def test_answers_are_those_of_ask(client, home, document, sharp_model):
    # In bf16 last digits depend on where chunks end, and a prompt word for word has its documents' end nowhere.
    with session(home, sharp_model, max_tokens=24, dtype="f32") as s:
        for question in ASKED:
            *_, done = s.stream(question, [str(document)], persist=False)
            assert isinstance(done, Done)
            found = client.post("chat/completions", json=asking(prompt_of(document, question))).json()
            (choice,) = found["choices"]
            assert choice["message"]["content"].strip() == done.report.to_json()["answer"]
            assert choice["finish_reason"] == {"length": "length", "eos": "stop"}[done.report.to_json()["stopped"]]
            tokens = done.report.to_json()["tokens"]
            assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (
                tokens["prompt"],
                tokens["generated"],
            )
            assert found["usage"]["total_tokens"] == tokens["prompt"] + tokens["generated"]
            text, pieces = streamed(
                client, asking(prompt_of(document, question), stream_options={"include_usage": True})
            )
            assert text == choice["message"]["content"]
            again = {**found["usage"], "prompt_tokens_details": {"cached_tokens": tokens["prompt"] // PAGE * PAGE}}
            assert pieces[-1]["usage"] == again
            assert pieces[0]["choices"][0]["delta"]["role"] == "assistant"
            assert {p["id"] for p in pieces} == {pieces[0]["id"]}


def test_questions_at_the_same_time_interleave_and_are_answered_as_alone(client, document, monkeypatch):
    bodies = [asking(prompt_of(document, q), max_tokens=60) for q in ASKED[:2]]
    alone = [client.post("chat/completions", json=body).json()["choices"][0]["message"]["content"] for body in bodies]
    arrived, passes, texts = threading.Semaphore(0), list[int](), ["", ""]
    submit, forward_each = EngineWorker.submit, LocalModel.forward_each

    def note(worker, *args, **options):
        stream = submit(worker, *args, **options)
        arrived.release()
        return stream

    def compute(model, requests, *rest):
        if not passes:  # nothing is computed before both questions have come
            assert arrived.acquire(timeout=60)
            assert arrived.acquire(timeout=60)
        passes.append(len(requests))
        return forward_each(model, requests, *rest)

    monkeypatch.setattr(EngineWorker, "submit", note)
    monkeypatch.setattr(LocalModel, "forward_each", compute)

    def ask(i: int) -> None:
        texts[i], _ = streamed(client, bodies[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert texts == alone
    assert passes.count(2) > 10, "one waited for the other"


def test_a_prepared_document_is_not_read_again(serving, client, document, sharp_model):
    body = asking(prompt_of(document, ASKED[0]))
    cold = client.post("chat/completions", json=body).json()
    with session(serving[2], sharp_model, dtype="f32") as s:
        list(s.prepare(str(document)))
    warm = client.post("chat/completions", json=body).json()
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] >= KEPT // PAGE * PAGE
    assert warm["choices"][0]["message"] == cold["choices"][0]["message"]


def test_text_that_is_none_is_no_fault(client):
    reply = client.post("chat/completions", content=b'{"messages": [{"role": "user", "content": "\\ud800x"}]}')
    assert reply.status_code == 200


@pytest.mark.parametrize("data", [b'{"a": NaN}', b'{"a": 1e999}', b"[" * 100_000, b'{"a": "\xff"}', b"9" * 5000])
def test_what_no_response_could_have_in_it_is_refused(data):
    with pytest.raises(ApiError, match="not JSON"):
        parse_json(data)
    assert parse_json(b'{"\\ud800": ["a\\uD83D\\uDE00\\udc00", 1.5]}') == {"?": ["a\U0001f600?", 1.5]}


def test_sampling_is_as_asked_for(client):
    def say(**more) -> str:
        return client.post("chat/completions", json=asking("Say.", **more)).json()["choices"][0]["message"]["content"]

    assert say(temperature=1, seed=5) == say(temperature=1, seed=5) != say(temperature=1, seed=6)
    found = client.post("chat/completions", json=asking("Say.", max_tokens=9, max_completion_tokens=5)).json()
    assert (found["usage"]["completion_tokens"], found["choices"][0]["finish_reason"]) == (5, "length")


def test_an_answer_ends_where_a_stop_text_begins(client):
    whole = client.post("chat/completions", json=asking("Say.", temperature=1, seed=1)).json()
    text = whole["choices"][0]["message"]["content"]
    stop = text[4:6]
    body = asking("Say.", temperature=1, seed=1, stop=[stop, "never said"])
    found = client.post("chat/completions", json=body).json()["choices"][0]
    assert (found["message"]["content"], found["finish_reason"]) == (text[: text.index(stop)], "stop")
    assert streamed(client, body)[0] == text[: text.index(stop)]


@given(st.lists(st.text("abc", max_size=4), max_size=12), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
@examples(max_examples=200, deadline=None)
def test_stop_texts_are_found_wherever_pieces_end(pieces, stops):
    until, whole = StopTexts(stops), "".join(pieces)
    said = "".join(until(piece) for piece in pieces) + until.flush()
    found = [i for i in range(len(whole)) if any(whole.startswith(stop, i) for stop in stops)]
    assert until.stopped == bool(found)
    assert whole.startswith(said)
    assert not any(stop in said for stop in stops)
    assert said == whole if not found else len(said) >= found[0] - max(map(len, stops))


def test_what_is_there_is_told(client):
    (model,) = client.get("models").json()["data"]
    assert client.get(f"models/{model['id']}").json() == model
    assert model["id"].endswith("sharp")
    assert model["max_model_len"] == 4096
    assert httpx.get(str(client.base_url).replace("/v1/", "/health"), trust_env=False).json() == {"status": "ok"}


# Refusals


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "not JSON"),
        ([], 400, "JSON object"),
        ({}, 400, "messages"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "role"),
        ({"messages": [{"role": "user", "content": None}]}, 400, "not text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "not text"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "the user's"),
        (asking("x", n=2), 400, "n answers at temperature 0"),
        (asking("x", n=17, temperature=1), 400, "n = 17 is out of range"),
        (asking("x", temperature="hot"), 400, "temperature"),
        (asking("x", temperature=99), 400, "temperature = 99 is not valid"),
        (asking("x", max_tokens=0), 400, "max_tokens = 0 is not valid"),
        (asking("x", stop=[""]), 400, "stop"),
        (asking("x", tools=[{}]), 400, "tools"),
        (asking("x", model="gpt-9"), 404, "does not have the model 'gpt-9'"),
        (asking("x" * 5000), 400, "tokens, and .* reads at most 4,096"),
        (asking("x" * 5000, stream=True), 400, "tokens, and .* reads at most 4,096"),
    ],
)
def test_what_cannot_be_answered_is_told_as_openai_tells_it(client, body, status, said):
    how = {"content": body} if isinstance(body, bytes) else {"json": body}
    reply = client.post("chat/completions", **how)
    error = reply.json()["error"]
    assert reply.status_code == status, error
    assert re.search(said, error["message"]), error
    assert error["type"] == "invalid_request_error"
    assert (error["code"] == "context_length_exceeded") == ("reads at most" in said)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), st.lists, max_leaves=4))
@examples(max_examples=100, deadline=None)
def test_no_request_is_a_fault_of_ours(tmp_path_factory, value):
    plain = Settings(tmp_path_factory.getbasetemp(), "m")
    for name in ("messages", "n", "temperature", "top_p", "seed", "max_tokens", "stop", "stream_options", "model"):
        with suppress(ApiError, UsageError):
            CompletionRequest.parse({**asking("x"), name: value}, plain)
    for name in ("role", "content"):
        with suppress(ApiError):
            CompletionRequest.parse({"messages": [{"role": "user", "content": "x", name: value}]}, plain)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic {key}"}, 401),
        ({"authorization": "bearer {key}"}, 200),
        ({"authorization": "Bearer {key}", "host": "evil.example"}, 421),
        ({"authorization": "Bearer {key}", "host": "127.0.0.1.evil.example:80"}, 421),
        ({"authorization": "Bearer {key}", "host": "localhost:1"}, 200),
        ({"authorization": "Bearer {key}", "origin": "https://evil.example"}, 200),
    ],
)
def test_who_may_ask(serving, headers, status):
    url, key, _ = serving
    reply = httpx.get(f"{url}/models", headers={n: v.format(key=key) for n, v in headers.items()}, trust_env=False)
    assert reply.status_code == status
    assert not any(name.startswith("access-control") for name in reply.headers), "pages of other sites can read it"


def test_the_key_is_its_owners_alone(serving):
    file = serving[2] / "serve.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().strip() == serving[1]


# Who has gone


def test_who_leaves_frees_the_slot_within_a_second(serving, client, home, sharp_model):
    url, key, _ = serving
    long = asking("x" * 1500, max_tokens=2500)
    with client.stream("POST", "chat/completions", json={**long, "stream": True}) as reply:
        for line, _ in zip(reply.iter_lines(), range(8), strict=False):
            assert "error" not in line
    begun = time.monotonic()
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=60, trust_env=False) as other:
        with pytest.raises(httpx.ReadTimeout):  # reading so much takes any machine longer than that
            other.post("chat/completions", json=asking("x" * 3500), timeout=0.05)
        asked = time.monotonic()
        other.post("chat/completions", json=asking("Hi.", max_tokens=8))
        assert seconds_since(asked) < 2
    assert seconds_since(begun) < 4


def test_ctrl_c_ends_it_within_a_second_whatever_runs(tmp_path, sharp_model):
    line = [sys.executable, "-m", "localctx", "serve", "--port", "0", "--model", sharp_model, "--threads", 1]
    environment = {**os.environ, "LOCALCTX_HOME": str(tmp_path / "home")}
    with (
        subprocess.Popen([*map(str, line)], stdout=subprocess.PIPE, text=True, env=environment) as process,
        ExitStack() as undone,
    ):
        undone.callback(process.kill)  # a failure here is not to wait for it
        assert process.stdout
        url, key = (process.stdout.readline().split()[-1] for _ in range(2))
        how = {"json": asking("x" * 1500, max_tokens=2500, stream=True), "headers": {"authorization": f"Bearer {key}"}}
        with (
            httpx.Client(timeout=60, trust_env=False) as client,
            client.stream("POST", f"{url}/chat/completions", **how) as reply,
        ):
            lines = (line for line in reply.iter_lines() if line.startswith("data"))
            for _ in range(4):
                next(lines)
            process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            *_, last = lines
        process.wait(30)
        assert seconds_since(begun) < 1
    assert "the server is shutting down" in last


# A batch of our own


def test_our_own_batch_is_done_by_our_own_server(run, serving, tmp_path, monkeypatch, sharp_model):
    url, key, _ = serving
    monkeypatch.setenv(KEY, key)
    texts = write_texts(tmp_path / "texts")
    (texts / "zlong.md").write_text(long_text(5, 12))
    done = run("summarize", texts, "--json", "--length", "9", "--server", url.removesuffix("/v1"), "--together", "4")
    assert counts(done) == (6, 0, 0), done.stderr
    there = {d["name"]: d for d in json.loads(done.stdout)["documents"]}
    assert there["zlong.md"]["mode"] == "sections"
    assert there["red.txt"]["tokens"]["estimated"] == 0
    for name, value in {**PLAIN, "model": sharp_model, "dtype": "f32"}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    monkeypatch.delenv("LOCALCTX_MAX_TOKENS")
    here = run("summarize", texts, "--json", "--length", "9")
    for d in json.loads(here.stdout)["documents"]:
        if d["name"] != "zlong.md":
            assert d["summary"] == there[d["name"]]["summary"]
            assert d["tokens"]["prompt"] == there[d["name"]]["tokens"]["prompt"]


# --- What clients send that needs care


@pytest.mark.parametrize("place", ["first", "later"])
def test_an_assistant_message_without_content_is_empty(client, place):
    earlier = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": None}]
    messages = [*(earlier if place == "later" else earlier[1:]), {"role": "user", "content": "And now?"}]
    reply = client.post("chat/completions", json={"messages": messages, "max_tokens": 2})
    assert reply.status_code == 200, reply.text
    wrong = [{"role": "user", "content": None}]
    assert client.post("chat/completions", json={"messages": wrong}).status_code == 400


def test_streamed_probabilities_say_where_their_tokens_begin(client):
    body = {"prompt": "The river", "max_tokens": 6, "logprobs": 1, "temperature": 0}
    whole = client.post("completions", json=body).json()["choices"][0]["logprobs"]
    with client.stream("POST", "completions", json=body | {"stream": True}) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: {")]
    parts = [one for line in lines if (one := json.loads(line)["choices"][0]["logprobs"])]
    assert len(parts) == 6
    assert [part["text_offset"][0] for part in parts] == whole["text_offset"]
    assert whole["text_offset"] == sorted(whole["text_offset"])
    assert whole["text_offset"][-1] > 0


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "x" * 5000}]}, "the messages are"),
        ("completions", {"prompt": "x" * 5000}, "the prompt is"),
        ("completions", {"prompt": "y " * 90_000}, "the prompt is about"),
    ],
)
def test_a_prompt_that_is_too_long_is_told_in_the_clients_words(client, path, body, said):
    error = client.post(path, json=body).json()["error"]
    assert said in error["message"]
    assert "document" not in error["message"]
    assert "--" not in error["message"]
    assert "localctx" not in error["message"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("broken.pdf", b"%PDF-1.7 nothing", "broken.pdf"),
        ("empty.txt", b"", "empty.txt is empty"),
        ("a b ü.docx", b"PK\x03\x04 no zip", "a b ü.docx"),
    ],
)
def test_a_refused_upload_does_not_tell_where_the_server_keeps_files(client, serving, name, content, said):
    reply = client.post("files", files={"file": (name, content)}, data={"purpose": "assistants"})
    message = reply.json()["error"]["message"]
    assert reply.status_code == 400
    assert said in message
    assert str(serving[2]) not in message
    assert "uploads" not in message
