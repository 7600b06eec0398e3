"""``chat`` and ``chats`` as a person at a terminal and a script meet them."""

import json
import os
import pty
import sys
import time
from contextlib import closing

import pytest
from ask_in_process import PLAIN
from command_checks import assert_one_line

from localctx.cli.printing import visible
from localctx.store.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def settings(home, monkeypatch, tiny_model):
    """Small answers of the tiny model with one thread."""
    for name, value in {**PLAIN, "max_tokens": 6, "model": tiny_model}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))


@pytest.fixture
def chat(run):
    """``chat(lines, *arguments)``: the command with these lines in a pipe."""
    return lambda lines, *arguments: run("chat", *arguments, stdin="\n".join(lines).encode())


def reports(done) -> list[dict]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def listed(run) -> list[dict]:
    return json.loads(run("chats", "list", "--json").stdout)


def test_a_pipe_asks_line_by_line_and_a_chat_is_resumed(run, chat, document):
    first, second = reports(chat(["How long is river 7?", "", "And 8?"], document, "--json"))
    (third,) = reports(chat(["And 9?"], "-c", "--json"))
    (fourth,) = reports(chat(["And 10?"], "--resume", "How long is river 7?", "--json", "--model", first["model"]))
    assert first["chat"] == second["chat"] == third["chat"] == fourth["chat"]
    assert fourth["message"] > third["message"] > second["message"] > first["message"]
    assert third["tokens"]["reused"] > first["tokens"]["prompt"] - 20
    (row,) = listed(run)
    assert (row["title"], row["messages"], row["documents"][0]["name"]) == ("How long is river 7?", 8, "rivers.txt")


def test_plain_answers_are_lines_and_the_rest_is_on_stderr(chat, document):
    done = chat(["How long?", "And 8?", "/docs"], document)
    answers = [r["answer"] for r in reports(chat(["How long?", "And 8?"], document, "--json"))]
    assert done.stdout == visible("".join(f"{a}\n" for a in answers))
    assert "rivers.txt" in done.stderr


def test_every_command_does_what_help_says(run, chat, document, tmp_path):
    other = tmp_path / "lakes.txt"
    other.write_text("Lakes are deep.")
    lines = ["/help", "How long?", "/rename  My\tchat ", "/edit How deep?", "/branches", "/branch 1", "And 8?"]
    lines += [f"/add {other}", "/docs", "/regenerate 2", f"/export {tmp_path / 'a.md'}", "/new", "Why?", "/quit", "no"]
    done = chat(lines, document)
    assert done.returncode == 0, done.stderr
    for shown in ("/regenerate [TEMPERATURE]", "* 2: ", "  1: ", "lakes.txt", "exported to"):
        assert shown in done.stderr
    new, old = listed(run)
    assert (old["title"], old["messages"], len(old["documents"])) == ("My chat", 7, 2)
    assert (new["title"], new["messages"], len(new["documents"])) == ("Why?", 2, 2)
    exported = (tmp_path / "a.md").read_text()
    assert exported.startswith("# My chat\n")
    assert "How long?" in exported
    assert "How deep?" not in exported


@pytest.mark.parametrize(
    ("lines", "arguments", "code", "problem", "remedy"),
    [
        (["/frobnicate"], [], 2, "no command /frobnicate", "/help"),
        (["/branch 2"], [], 2, "no branch '2'", "/branches"),
        (["/edit"], [], 2, "/edit takes", "for example"),
        (["/regenerate hot"], [], 2, "'hot' is not a temperature", "0.8"),
        (["/regenerate"], [], 1, "nothing was asked", "ask something"),
        (["/export /nowhere/a.md"], [], 1, "/nowhere/a.md cannot be written", "another place"),
        (["/add nothing.md"], [], 1, "nothing.md does not exist", "check the name"),
        (["Why?"], ["nothing.md"], 1, "nothing.md does not exist", "check the name"),
        (["Why?"], ["-"], 2, "is used for the questions", "name a file"),
        (["Why?"], ["-c"], 1, "no chat yet", "begin one"),
        (["Why?"], ["-r", "nobody"], 1, "no chat 'nobody'", "begin"),
        (["Why?"], ["-c", "-r", "x"], 2, "cannot be combined", "one of them"),
        (["Why?"], ["--n", 2, "--temperature", 1], 2, "one answer at a time", "/regenerate"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_no_empty_chat(run, chat, lines, arguments, code, problem, remedy):
    assert_one_line(chat(lines, *arguments), code, problem, remedy)
    assert listed(run) == []


def test_the_same_answer_again_is_refused_in_one_line(chat, document):
    done = chat(["How long?", "/regenerate"], document, "-q")
    assert_one_line(done, 2, "would be the same", "0.8")


@pytest.fixture
def full(home, tmp_path, chat):
    """A chat whose next question does not fit."""
    document = tmp_path / "long.txt"
    document.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(130)))
    home.mkdir(exist_ok=True)
    from localctx.library.read_document import read_document

    with closing(Store(home)) as store:
        d = read_document(str(document))
        store.documents.add(d.row, d.text, d.spans)
        made = store.chats.create("Full", [d.row.id])
        asked = store.chats.append(made.id, None, "user", "Tell me. " * 30).id
        store.chats.append(made.id, asked, "assistant", "They are long. " * 30)


def test_a_full_chat_in_a_pipe_names_the_flags(chat, full):
    done = chat(["And 8?"], "-c")
    assert_one_line(done, 1, "this chat is full", "--when-full sink-window")


@pytest.mark.parametrize(("way", "chats", "messages"), [("sink-window", 1, 4), ("summarize", 1, 6), ("new", 2, 2)])
def test_a_full_chat_goes_on_as_the_flag_says(run, chat, full, way, chats, messages):
    (report,) = reports(chat(["And 8?"], "-c", "--when-full", way, "--json"))
    assert report["tokens"]["generated"] == 6
    assert report["kv"]["keeper"] == ("sink-window" if way == "sink-window" else "full")
    assert (len(listed(run)), listed(run)[0]["messages"]) == (chats, messages)


def test_chats_are_listed_shown_renamed_exported_and_removed(run, chat, document, home, tmp_path):
    assert "There are no chats" in run("chats", "list").stdout
    chat(["How long?", "And 8?"], document)
    (row,) = listed(run)
    table = run("chats", "list").stdout.splitlines()
    assert len(table) == 2
    assert all(word in table[1] for word in (row["id"], "How long?", "rivers.txt", " 4 "))
    assert "> And 8?" in run("chats", "show", row["id"][:6]).stdout
    assert len(json.loads(run("chats", "show", "How long?", "--json").stdout)["messages"]) == 4
    assert run("chats", "rename", "How long?", "Rivers").stdout == "How long? is now Rivers\n"
    for name in ("a.md", "a.json"):
        assert run("chats", "export", "Rivers", "-o", tmp_path / name).returncode == 0
    assert visible((tmp_path / "a.md").read_text()) == run("chats", "export", "Rivers").stdout
    assert json.loads((tmp_path / "a.json").read_text())["title"] == "Rivers"
    assert "Rivers moved to the trash" in run("chats", "rm", "Rivers").stdout
    assert listed(run) == []
    assert "rivers.txt" in run("library", "list").stdout
    assert run("library", "rm", "rivers.txt").returncode == 0
    assert [p.name for p in (home / "pages").iterdir()] == ["CACHEDIR.TAG"], (
        "what was read of a document goes with the document"
    )
    assert_one_line(run("chats", "rm", "Rivers"), 1, "no chat 'Rivers'", "begin")


def test_at_a_terminal_ctrl_c_keeps_the_answer_and_ctrl_d_leaves(run, document, monkeypatch):
    monkeypatch.setenv("LOCALCTX_MAX_TOKENS", "3000")
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "localctx", "chat", str(document)])
    shown = bytearray()

    def wait(for_: bytes, more: int = 0) -> None:
        """Until this was shown, and some bytes after it."""
        deadline = time.monotonic() + 100
        while for_ not in shown or len(shown) < shown.index(for_) + len(for_) + more:
            assert time.monotonic() < deadline, bytes(shown)
            shown.extend(os.read(terminal, 4096))
        del shown[: shown.index(for_) + len(for_)]

    wait(b"> ")
    os.write(terminal, b"/frobnicate\n")
    wait(b"no command /frobnicate")
    wait(b"> ")
    os.write(terminal, b"How long?\n")
    wait(b"full: ", more=200)  # the plan, and some of the answer
    os.write(terminal, b"\3")
    wait(b"first token after")
    wait(b"> ")
    os.write(terminal, b"\4")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(terminal)
    (row,) = listed(run)
    question, answer = json.loads(run("chats", "show", row["id"], "--json").stdout)["messages"]
    assert (question["text"], answer["stopped"]) == ("How long?", "cancelled")
    assert answer["text"]
