"""Names, titles, text of documents and of models reach a terminal as what they are: letters, and never commands."""

import ast
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ask_in_process import PLAIN

from localctx.cli import printing
from localctx.cli.printing import SIMILAR, print_json_text, printable_line, visible, visible_json, visible_line
from localctx.file_names import real_path, shown_name, stored_path

pytestmark = pytest.mark.slow

TITLE = "\x1b]0;X\a"  # sets a terminal's title
BIDI = "\u202e"
NOT_UTF8 = os.fsdecode(b"b\xff.txt")
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
CLI = Path(printing.__file__).parent


@pytest.fixture(autouse=True)
def settings(home, monkeypatch):
    """Small answers with one thread."""
    for name, value in {**PLAIN, "max_tokens": 6}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))


@pytest.fixture
def folder(tmp_path) -> Path:
    """Documents with names and texts that would command a terminal, and one whose name is not UTF-8."""
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / f"evil{TITLE}{BIDI}exe.txt").write_text(f"The lease {TITLE} says 600 {BIDI} euros \x9b31m. " * 9 + "\n")
    (folder / "two\nlines.txt").write_text("Nothing about rent is said here.\n")
    Path(folder, NOT_UTF8).write_text("The river is long.\n")
    return folder


def test_controls_are_shown_and_letters_stay():
    assert visible("a\x1b[31mb\r\x9b\u202e\ud800é\n\tß") == "a\\x1b[31mb\\x0d\\x9b\\u202e\ufffdé\n\tß"
    assert visible_line("a\nb\tc") == "a\\nb\\tc"
    assert printable_line(" a\n\x1b b ") == "a \\x1b b"


def test_json_means_the_same(capsys):
    value = {"name": "\x9b31m\u202e\x7f\ud800 é \x1b"}
    text = json.dumps(value, ensure_ascii=False, indent=2)
    assert not FORBIDDEN.search(visible_json(text).replace("\n", ""))
    assert json.loads(visible_json(text)) == value
    print_json_text(text)
    assert json.loads(capsys.readouterr().out) == value


def test_no_command_prints_in_another_way():
    """A name that is printed with ``print`` would reach the terminal as it is."""
    found = []
    for file in sorted(CLI.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and file.name != "printing.py":
                called = ast.unparse(node.func)
                found += [f"{file.name}: {called}"] if called in ("print", "click.echo", "sys.stdout.write") else []
                found += [f"{file.name}: {called}"] if called in ("sys.stderr.write", "click.secho") else []
    assert found == []


def everything(run, folder, model) -> str:
    """What all commands print that show names or text of documents."""
    add = run("library", "add", folder)
    assert add.returncode == 0, add.stderr
    done = [add, run("library", "list"), run("library", "search", "lease")]
    ids = [d["id"] for d in json.loads(run("library", "list", "--json").stdout)]
    done += [run("library", "show", i) for i in ids] + [run("library", "pin", i) for i in ids]
    for file in sorted(folder.iterdir()):
        done.append(run("ask", file, f"How long {TITLE} is it?", "--model", model, "--alone"))
        done.append(run("prepare", file, "--model", model))
        done.append(run("ask", f"{file}.not", "Why?", "--model", model))
    done.append(run("summarize", folder, "--model", model, "--length", "short"))
    done.append(run("chat", *folder.iterdir(), "--model", model, stdin=f"What {TITLE} is it?\n".encode()))
    done += [run("chats", "list"), run("chats", "show", "What"), run("library", "rm", *ids)]
    return "\n".join(one.stdout + one.stderr for one in done)


def test_no_command_sends_controls_from_names_or_texts(run, folder, tiny_model):
    said = everything(run, folder, tiny_model)
    assert not FORBIDDEN.search(said)
    assert "evil\\x1b]0;X\\x07\\u202eexe.txt" in said
    assert "two\\nlines.txt" in said
    assert "says 600 \\u202e euros" in said
    assert "b\ufffd.txt" in said
    assert "Traceback" not in said
    assert "localctx.log" not in said


# Names that are not UTF-8


def test_such_a_name_is_shown_stored_and_found_again(tmp_path):
    file = tmp_path / NOT_UTF8
    file.write_text("x")
    assert shown_name(NOT_UTF8) == "b\ufffd.txt"
    assert stored_path(NOT_UTF8) == "b\\xff.txt"
    assert real_path(stored_path(str(file))) == file
    assert real_path(stored_path("/a/ü.txt")) == Path("/a/ü.txt")
    assert stored_path("\ud800").encode() == "\ufffd".encode()


def test_a_folder_with_such_a_name_is_read_listed_and_deleted(run, folder):
    done = run("library", "add", folder, "--json")
    assert {d["status"] for d in json.loads(done.stdout)["documents"]} == {"added"}
    listed = {d["name"]: d for d in json.loads(run("library", "list", "--json").stdout)}
    assert "b\ufffd.txt" in listed
    assert listed["b\ufffd.txt"]["path"] == f"{folder}/b\\xff.txt"
    assert {d["status"] for d in json.loads(run("library", "add", folder, "--json").stdout)["documents"]} == {
        "unchanged"
    }
    assert run("library", "rm", folder / NOT_UTF8).returncode == 0
    assert run("library", "add", folder / NOT_UTF8).returncode == 0
    assert run("library", "rm", "b\ufffd.txt").returncode == 0
    assert len(json.loads(run("library", "list", "--json").stdout)) == 2


def test_two_such_names_are_two_documents(run, folder):
    Path(folder, os.fsdecode(b"b\xfe.txt")).write_text("Another river.\n")
    assert run("library", "add", folder).returncode == 0
    assert [d["superseded"] for d in json.loads(run("library", "list", "--json").stdout)] == [None] * 4


def test_such_a_file_is_asked_prepared_and_summarized(run, folder, tiny_model):
    file = folder / NOT_UTF8
    for command in (("ask", file, os.fsdecode(b"How l\xffng?")), ("prepare", file), ("summarize", file)):
        done = run(*command, "--model", tiny_model, "--json")
        assert done.returncode == 0, done.stderr
        said = json.dumps(json.loads(done.stdout))
        assert "b\\ufffd.txt" in said or command[0] == "ask", command


def test_a_question_from_a_pipe_that_is_not_utf8_is_asked(run, folder, tiny_model):
    done = run("chat", folder / NOT_UTF8, "--model", tiny_model, "--json", stdin=b"How l\xffng?\n")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("encoding", "text", "written"),
    [
        ("ascii", "“Aurora” — €500…", '"Aurora" - EUR500...'),
        ("ascii", "Bürger in Łódź, cafe\u0301", "Burger in Lodz, cafe"),
        ("latin-1", "Bürger — “Łódź”", 'Bürger - "Lódz"'),
        ("cp1252", "€ “ü” — Ł", "€ “ü” — L"),
        ("cp437", "Straße → 東京", "Straße -> ??"),
        ("utf-8", "“Łódź” 東京", "“Łódź” 東京"),
    ],
)
def test_letters_that_an_output_lacks_are_written_as_similar_ones(encoding, text, written):
    assert text.encode(encoding, SIMILAR).decode(encoding) == written


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8"])
def test_json_keeps_every_letter_in_any_encoding(encoding, monkeypatch):
    value = {"quote": "“Łódź” — 東京 😀 €", "name": "Bürger"}
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding, errors=SIMILAR))
    print_json_text(json.dumps(value, ensure_ascii=False))
    assert json.loads(output.getvalue().decode(encoding)) == value


@pytest.mark.parametrize(
    "set_encoding",
    [
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
    ids=["latin-1", "ascii", "C"],
)
def test_a_command_whose_output_is_not_utf8_loses_nothing(set_encoding, home, tmp_path):
    (tmp_path / "ferry.txt").write_text("The ferry — built in 1999 — costs “€500” in Łódź.", encoding="utf-8")
    env = {**os.environ, **set_encoding, "LOCALCTX_HOME": str(home), "LOCALCTX_EMBEDDER": "none"}
    for words in (["add", str(tmp_path / "ferry.txt")], ["search", "ferry"]):
        done = subprocess.run([sys.executable, "-m", "localctx", "library", *words], env=env, capture_output=True)
        assert (done.returncode, b"Error" in done.stderr) == (0, False), done.stderr
    assert b"costs" in done.stdout
    assert b"EUR500" in done.stdout
    assert b"- built in 1999 -" in done.stdout
