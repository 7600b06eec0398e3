"""``summarize --server``: a server has the model, all else stays here; what goes wrong there is told and is no loss."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from urllib.request import Request, urlopen

import pytest
from ask_in_process import PLAIN
from batch_texts import COLOURS, counts, long_text, report_of, summaries, write_texts
from clock import seconds_since
from command_checks import assert_one_line
from fake_server import MODEL, cut, fake_server, silent, status, words
from processes import opened
from required_extras import needs_llama
from tiny_gguf import write_gguf

from localctx.batch import http_connection, server_client
from localctx.batch.remote_server import KEY, ServerAddress
from localctx.engine.prompt_wording import AS_IT_IS, content
from localctx.errors import UsageError
from localctx.library.wording.sentences import trim_to_sentence
from localctx.store.store import Store
from localctx.workflows.summary_task import SummaryTask

pytestmark = pytest.mark.slow

ENDLESS = 'data: {"choices": [{"delta": {"content": "' + "x" * 99_999 + '"}}]}\n\n'


def assert_told(done: subprocess.CompletedProcess, code: int, problem: str, remedy: str) -> None:
    assert_one_line(done, code, re.escape(problem), re.escape(remedy))


@pytest.fixture(autouse=True)
def quick(home, monkeypatch):
    """Nothing is waited for long, and there is no model here that could answer."""
    monkeypatch.setattr(server_client, "RETRY_PAUSES", (0.01, 0.02))
    monkeypatch.setattr(server_client, "PROGRESS_INTERVAL", 0)
    monkeypatch.setenv("LOCALCTX_MODEL", "/nothing/here")
    monkeypatch.delenv(KEY, raising=False)
    for name, value in PLAIN.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    monkeypatch.delenv("LOCALCTX_MAX_TOKENS")


@pytest.fixture
def texts(tmp_path):
    return write_texts(tmp_path / "texts")


@pytest.fixture
def there():
    with fake_server() as server:
        yield server


# What is done


def test_the_model_is_there_and_all_else_is_here(run, texts, tmp_path, there, home):
    out = tmp_path / "out"
    done = run("summarize", texts, "-o", out, "--json", "--server", there.url, "--length", "short")
    assert counts(done) == (5, 0, 0), done.stderr
    said = summaries(out)
    assert all(f"Its door is {colour}." in said[f"{colour}.txt"] for colour in COLOURS)
    assert all("[^1]: " in text for text in said.values()), "nothing is cited"
    (red,) = [d for d in json.loads(done.stdout)["documents"] if d["name"] == "red.txt"]
    assert red["model"] == f"{MODEL} @ {there.url.removeprefix('http://')}"
    prompt = content([(texts / "red.txt").read_text()], SummaryTask("short").document_instruction, AS_IT_IS)
    assert prompt in there.contents()
    count = len(prompt.split())
    assert red["tokens"] == {
        **{"prompt": count, "reused": 2, "prefilled": count - 2, "generated": 4, "dropped": 0, "estimated": 0}
    }
    assert {(b["temperature"], b["seed"], b["max_tokens"], b["stream"]) for b in there.asked} == {(0, 0, 80, True)}
    with closing(Store(home)) as store:
        assert store.db.table("results").count == 5


def test_what_was_done_is_skipped_at_another_address_too(run, texts, tmp_path, there):
    how = ("summarize", texts, "-o", tmp_path / "out", "--json", "--server")
    assert counts(run(*how, there.url)) == (5, 0, 0)
    asked = len(there.asked)
    assert counts(run(*how, f"{there.url}/v1/")) == (0, 5, 0)
    assert len(there.asked) == asked
    with fake_server() as other:
        assert counts(run(*how, other.url)) == (0, 5, 0), "the address has a part in the recipe"
        other.models = ["owl", MODEL]
        assert counts(run(*how, other.url, "--server-model", "owl")) == (5, 0, 0)
    assert_told(run(*how[:2], "-q", "--server-model", "owl", "--server", there.url), 1, "no model owl", MODEL)


@pytest.mark.parametrize("tell", ["", "vllm", "llama.cpp"])
@pytest.mark.parametrize("refine", [False, True])
def test_what_is_longer_than_the_window_is_read_in_sections(run, tmp_path, tell, refine):
    (tmp_path / "long.md").write_text(long_text(6, 30))
    with fake_server(window=900, tell=tell) as there:
        done = run("summarize", tmp_path / "long.md", "--json", "--server", there.url, *["--refine"] * refine)
        (entry,) = json.loads(done.stdout)["documents"]
        assert entry["mode"] == ("refine" if refine else "sections"), done.stderr
        assert len(entry["sections"]) >= 6
        assert {s["heading"] for s in entry["sections"]} == {f"Part {h}" for h in range(6)}
        assert entry["citations"]
        refused = [c for c in there.contents() if len(c.split()) > 700]
        assert len(refused) == (0 if tell else 1), "what cannot fit is sent again and again"


def test_documents_are_asked_about_together(run, texts, there):
    there.slow = 0.05
    assert counts(run("summarize", texts, "--json", "--server", there.url, "--together", 3)) == (5, 0, 0)
    assert there.most == 3


@pytest.mark.parametrize("mode", ["auto", "full", "retrieve"])
def test_questions_are_answered_from_the_whole_or_from_passages(run, texts, tmp_path, mode):
    long = long_text(5, 30) + "\n\n# End\n\nThe colour of the last door is violet.\n"
    (texts / "zlong.md").write_text(long)
    question = ("--question", "Which colour has the last door?", "--mode", mode)
    with fake_server(window=900) as there:
        done = run("summarize", texts, "--json", "--server", there.url, *question)
        by_name = {d.get("name"): d for d in json.loads(done.stdout)["documents"]}
        assert counts(done) == ((5, 0, 1) if mode == "full" else (6, 0, 0)), done.stderr
        (red,) = by_name["red.txt"]["answers"]
        assert (red["answer"], red["mode"]) == ("Its door is red.", "retrieve" if mode == "retrieve" else "full")
        assert red["citations"][0]["quote"] == "Its door is red."
        if mode != "full":
            (answer,) = by_name["zlong.md"]["answers"]
            assert answer["mode"] == "retrieve"
            assert answer["answer"] == "The colour of the last door is violet."
            (cited, *_) = answer["citations"]
            assert (cited["heading"], long[cited["start"] : cited["end"]]) == ("End", answer["answer"])


def test_a_server_that_does_not_count_is_estimated_and_said_to_be(run, texts, there):
    there.usage = False
    done = run("summarize", texts / "red.txt", "--json", "--server", there.url)
    tokens = json.loads(done.stdout)["documents"][0]["tokens"]
    assert tokens["estimated"] == tokens["prompt"] + tokens["generated"] > 0
    assert "estimated" in done.stderr


def test_a_server_that_cuts_a_text_silently_is_found_out(run, tmp_path, there):
    (tmp_path / "long.md").write_text(long_text(6, 30))
    there.always = lambda handler: handler.stream("A summary.", min(500, len(there.contents()[-1].split())))
    done = run("summarize", tmp_path / "long.md", "--json", "--server", there.url)
    (entry,) = json.loads(done.stdout)["documents"]
    assert entry["mode"] == "sections"


def test_thoughts_are_no_summary(run, texts, there):
    there.faults = [lambda h: h.stream("<think>Hm. A door.</think>\n\nA red house.", 30)]
    done = run("summarize", texts / "red.txt", "--json", "--server", there.url)
    assert json.loads(done.stdout)["documents"][0]["summary"] == "A red house."
    there.faults = [words('data: {"choices": [{"delta": {}, "finish_reason": "length"}]}\n\n')]
    assert "gave no answer" in run("summarize", texts / "blue.txt", "--server", there.url).stderr


def test_a_server_that_does_not_stream_is_understood(run, texts, there):
    answer = {"choices": [{"message": {"content": "A house."}, "finish_reason": "stop"}], "usage": "none"}
    there.faults = [words(json.dumps(answer), "application/json")]
    done = run("summarize", texts / "red.txt", "--json", "--server", there.url)
    assert json.loads(done.stdout)["documents"][0]["summary"] == "A house."


# What goes wrong with the server stops the batch


@pytest.mark.parametrize(
    ("fault", "problem", "remedy"),
    [
        (status(401, "bad key"), "needs a key (401: bad key)", KEY),
        (status(403), "needs a key", KEY),
        (status(307, Location="http://127.0.0.1:9/"), "redirects to another address", "--server"),
        (status(404, "The model parrot does not exist."), "has no model parrot", MODEL),
        (status(429, "slowly"), "is busy (429: slowly)", "later"),
        (status(503), "is busy", "later"),
        (status(500, "a fault\x1b[31m\nof two lines"), "failed (500: a fault [31m of two lines)", "log"),
        (words("<html>hello</html>", "text/html"), "not in OpenAI's form", "--server"),
        (words("data: {nonsense\n\n"), "not in OpenAI's form", "--server"),
        (words("data: [1]\n\n"), "not in OpenAI's form", "--server"),
        (words('data: {"choices": "none"}\n\n'), "not in OpenAI's form", "--server"),
        (words('data: {"choices": [{"delta": {"content": 5}}]}\n\n'), "not in OpenAI's form", "--server"),
        (words('{"choices": []}', "application/json"), "not in OpenAI's form", "--server"),
        (words(ENDLESS), "not in OpenAI's form", "--server"),
        (words('data: {"error": {"message": "out of memory"}}\n\n'), "closed the connection (out of memory)", "log"),
        (cut, "closed the connection", "log"),
    ],
)
def test_what_is_wrong_with_the_server_stops_the_batch(run, texts, there, fault, problem, remedy):
    there.always = fault
    done = run("summarize", texts, "-q", "--server", there.url, "--together", 1)
    assert_told(done, 1, problem, remedy)


def test_a_server_that_ends_keeps_nothing_from_being_kept(run, texts, tmp_path, there):
    there.faults = [lambda h: h.answer(there.asked[-1])] * 3 + [status(401)]
    how = ("summarize", texts, "-o", tmp_path / "out", "--server", there.url)
    stopped = run(*how, "--together", 1)
    assert stopped.returncode == 1
    assert "3 done, 0 skipped, 0 failed, of 5" in stopped.stderr
    assert len(summaries(tmp_path / "out")) == 3
    assert counts(run(*how, "--json")) == (2, 3, 0)


@pytest.mark.parametrize("fault", [status(429), status(503), status(500), status(502), cut])
def test_a_server_that_recovers_is_asked_again(run, texts, there, fault):
    there.faults = [fault, fault]
    done = run("summarize", texts, "--json", "--server", there.url, "--together", 2)
    assert counts(done) == (5, 0, 0), done.stderr
    assert "trying again in 0.01 s" in done.stderr


def test_a_server_whose_streams_break_off_is_asked_for_all_at_once(run, texts, there):
    def interrupted(handler) -> None:
        body = there.asked[-1]
        cut(handler) if body["stream"] else handler.answer(body)

    there.always = interrupted
    done = run("summarize", texts, "--json", "--server", there.url, "--together", 1)
    assert counts(done) == (5, 0, 0), done.stderr
    assert [body["stream"] for body in there.asked] == [True] + 5 * [False]


# What is wrong with one document does not


def test_what_is_wrong_with_one_document_does_not_stop_the_rest(run, texts, there):
    def crash(handler) -> None:
        bad = "green" in there.asked[-1]["messages"][0]["content"]
        status(500, "cannot read green")(handler) if bad else handler.answer(there.asked[-1])

    there.always = crash
    done = run("summarize", texts, "--json", "--server", there.url, "--together", 1)
    assert done.returncode == 3
    assert counts(done) == (4, 0, 1)
    assert "cannot read green" in report_of(done)["failed"][0]["why"]
    there.always, there.faults = None, [status(400, "no such words here")]
    assert counts(run("summarize", texts, "--json", "--server", there.url, "--force")) == (4, 0, 1)


def test_a_document_whose_smallest_sections_do_not_fit_is_told(run, texts, there):
    there.always = status(400, "This model's maximum context length is 9 tokens.")
    done = run("summarize", texts, "--server", there.url)
    assert done.returncode == 3
    assert "longer than 127.0.0.1" in done.stderr
    assert len(there.asked) < 10


# Addresses and keys


@pytest.mark.parametrize(
    ("url", "base", "near"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/", True),
        ("http://localhost:1/v1", "http://localhost:1/v1/", True),
        ("https://api.example.com/v1/", "https://api.example.com/v1/", False),
        ("http://[::1]:8000/openai", "http://[::1]:8000/openai/v1/", True),
        ("http://127.0.0.1.example.com", "http://127.0.0.1.example.com/v1/", False),
        ("http://10.0.0.7:8000", "http://10.0.0.7:8000/v1/", False),
    ],
)
def test_addresses_are_understood(url, base, near):
    address = ServerAddress.parse(url)
    assert (address.base, address.is_local) == (base, near)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://x", "file:///etc/passwd", "http://", "http://x:y", "http://me:secret@x"]
)
def test_what_is_no_address_is_told(url):
    with pytest.raises(UsageError) as told:
        ServerAddress.parse(url)
    assert "secret" not in str(told.value)


def test_nobody_is_there(run, texts):
    with fake_server() as gone:
        url = gone.url
    assert_told(run("summarize", texts, "-q", "--server", url), 1, "cannot be reached", "check --server")
    with fake_server() as there:
        there.models = []
        assert_told(run("summarize", texts, "-q", "--server", there.url), 1, "has no model", "load one")
        there.models = ["a", "b"]
        assert_told(run("summarize", texts, "-q", "--server", there.url), 2, "several models", "--server-model: a, b")
        elsewhere = f"{there.url}/elsewhere"
        assert_told(run("summarize", texts, "-q", "--server", elsewhere), 1, "not in OpenAI's form", "--server")


@pytest.mark.parametrize("flags", [("--kv", "int8"), ("--keep-pages",), ("--model", "x"), ("--memory", "1GiB")])
def test_flags_about_the_model_here_are_refused(run, texts, flags, there):
    assert_told(run("summarize", texts, "--server", there.url, *flags), 2, f"{flags[0]} is about", "leave one")
    assert not there.asked
    assert_told(run("summarize", texts, "--server-model", "x"), 2, "--server-model names a model", "--server")


def test_the_key_comes_from_the_environment_and_is_never_shown(run, texts, tmp_path, monkeypatch, home):
    key = "sk-quite-secret"
    how = ("summarize", texts, "-q", "-o", tmp_path / "out", "--jsonl", tmp_path / "all.jsonl", "--server")
    with fake_server(key=key) as there:
        assert_told(run(*how, there.url), 1, "needs a key", KEY)
        monkeypatch.setenv(KEY, key + "x")
        assert_told(refused := run(*how, there.url), 1, "does not accept the key", KEY)
        assert "secret" not in refused.stderr
        monkeypatch.setenv(KEY, key)
        done = run(*how, there.url)
        assert done.returncode == 0, done.stderr
        monkeypatch.setenv(KEY, key + "\n x: y")
        assert_told(run(*how, there.url), 2, "characters that a key cannot have", "set it again")
    written = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(written) > 6
    assert not any(key.encode() in p.read_bytes() for p in written)


def test_it_is_told_when_documents_leave_the_machine(run, texts, monkeypatch, there):
    assert "sent to" not in run("summarize", texts, "--server", there.url).stderr
    monkeypatch.setattr(http_connection, "CONNECT_TIMEOUT", 0.2)
    done = run("summarize", texts, "--server", "http://[100::1]:9")
    assert done.stderr.startswith("localctx: the documents are sent to [100::1]:9, unencrypted\n")
    assert done.returncode == 1


# Stopped and killed


def start(home, *arguments):
    line = [sys.executable, "-m", "localctx", "summarize", *map(str, arguments)]
    environment = {**os.environ, "LOCALCTX_HOME": str(home)}
    return subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for(true) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("fault", [silent, status(503, **{"Retry-After": "60"})])
def test_ctrl_c_stops_within_a_second_and_hangs_up(run, texts, tmp_path, there, home, fault):
    there.faults = [lambda h: h.answer(there.asked[-1])] * 2
    there.always = fault
    arguments = (texts, "-o", tmp_path / "out", "--server", there.url, "--together", "2")
    with start(home, *arguments) as process:
        wait_for(lambda: len(there.asked) >= 4)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        said = process.communicate(timeout=60)[1]
    assert seconds_since(begun) < 1
    assert process.returncode == 130, said
    assert "2 done" in said
    assert said.endswith("localctx: stopped; run it again to continue\n")
    wait_for(lambda: not there.busy)
    there.always = None
    assert counts(run("summarize", *arguments, "--json")) == (3, 2, 0)


def test_killed_it_goes_on_where_it_was(run, tmp_path, there, home):
    folder, out = tmp_path / "many", tmp_path / "out"
    folder.mkdir()
    for i in range(12):
        (folder / f"{i}.txt").write_text(f"River {i} is long. River {i} is {i * 37} km long.")
    there.slow = 0.02
    arguments = (folder, "-o", out, "--server", there.url, "--together", 3)
    with start(home, *arguments) as process:
        wait_for(lambda: len(list(out.glob("*.md"))) > 3)
        process.kill()
        process.communicate(timeout=60)
    with closing(Store(home)) as store:
        done, written = store.db.table("results").count, len(list(out.glob("*.md")))
    assert written <= done <= written + 3, "a result is stored before it is written"
    last = run("summarize", *arguments, "--json")
    assert counts(last) == (12 - done, done, 0)
    assert set(summaries(out)) == {f"{i}.txt" for i in range(12)}


# llama-cpp-python's own server


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """llama-cpp-python's server with a tiny random model of 512 tokens; where it is, and the file of the model."""
    file = write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "llama_cpp.server", "--model", file, "--port", port, "--n_ctx", 512, "--n_threads", 1]
    with opened([*map(str, line)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: process.poll() is not None or reached(url))
        assert process.poll() is None, "pip install 'llama-cpp-python[server]'"
        yield url, str(file)
        process.terminate()


def reached(url: str) -> bool:
    try:
        return urlopen(f"{url}/v1/models", timeout=5).status == 200
    except OSError:
        return False


def asked_plainly(url: str, model: str, prompt: str, most: int) -> str:
    """What a server answers whoever asks it."""
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": most, "temperature": 0}
    head = {"content-type": "application/json"}
    with urlopen(Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), head), timeout=60) as reply:
        return json.load(reply)["choices"][0]["message"]["content"].strip()


@needs_llama
def test_llama_cpp_pythons_server_summarizes(run, texts, tmp_path, llama):
    url, model = llama
    (texts / "zlong.md").write_text(long_text(2, 6))
    how = ("summarize", texts, "--json", "--server", url, "--length", "9", "--together", "3")
    done = run(*how, "-o", tmp_path / "out")
    assert counts(done) == (6, 0, 0), done.stderr
    documents = {d["name"]: d for d in json.loads(done.stdout)["documents"]}
    for colour in COLOURS:
        prompt = content([(texts / f"{colour}.txt").read_text()], SummaryTask("9").document_instruction, AS_IT_IS)
        said = trim_to_sentence(asked_plainly(url, model, prompt, SummaryTask("9").tokens))
        assert documents[f"{colour}.txt"]["summary"] == said
        assert documents[f"{colour}.txt"]["model"] == f"{model} @ {url.removeprefix('http://')}"
    assert documents["zlong.md"]["mode"] == "sections"
    assert len(documents["zlong.md"]["sections"]) >= 4
    assert "(512 tokens)" in done.stderr
    assert counts(run(*how)) == (0, 6, 0)
