"""``library watch``, the real command: its lines and its lists, killed and started again, and interrupted."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from process_lines import ProcessLines
from processes import opened

pytestmark = pytest.mark.slow

LIMIT = 120  # seconds that a step may take on a busy machine


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "watched"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(home, sharp_model, monkeypatch) -> None:
    for name, value in {"MODEL": sharp_model, "EMBEDDER": "none", "READ_AHEAD": "always", "THREADS": 1}.items():
        monkeypatch.setenv(f"LOCALCTX_{name}", str(value))
    monkeypatch.setattr("localctx.idle.run_at_low_priority", lambda: None)  # not this process, for all later tests


def write(folder: Path, name: str, first: int = 0, rivers: int = 26) -> Path:
    path = folder / name
    path.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(first, first + rivers)))
    return path


FILES = 10


class Lines(ProcessLines):
    """The JSON lines of a running ``library watch``."""

    def wait_for(self, news: str, count: int = 1) -> list[dict]:
        """The next lines up to the one with ``count`` times this news; those with the news."""
        found: list[dict] = []
        while len(found) < count:
            line = self.next(LIMIT)
            found += [line] if line["news"] == news else []
        return found


@contextmanager
def watching(*arguments: object) -> Iterator[Lines]:
    command = [sys.executable, "-m", "localctx", "library", "watch", "--json", *map(str, arguments)]
    with opened(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield Lines(process)
        process.kill()


def test_all_files_are_ready_whatever_happens(environment, folder, localctx):
    with watching(folder) as lines:
        paths = [write(folder, f"{i}.txt", first=i) for i in range(FILES)]
        before = {line["document"] for line in lines.wait_for("ready", 3)}
        assert psutil.Process(lines.process.pid).nice() > psutil.Process().nice()
        lines.process.send_signal(signal.SIGKILL)
    with watching() as lines:  # the folder is remembered
        asked = localctx("ask", paths[7], "How long is river 9?", "--json", "--max-tokens", 4)
        assert asked.returncode == 0, asked.stderr
        while len(before) < FILES:
            (line,) = lines.wait_for("ready")
            assert line["document"] not in before
            before.add(line["document"])
        paths[3].rename(folder / "renamed.txt")
        (moved,) = lines.wait_for("moved")
        assert moved["why"] == str(paths[3])
        listed = localctx("library", "watch", "--list", "--json")
        (status,) = json.loads(listed.stdout)
        assert (status["ready"], status["waiting"], status["failed"]) == (FILES, 0, {})
        lines.process.send_signal(signal.SIGINT)
        assert lines.process.wait(LIMIT) == 130
        assert "stopped; the pages that were read are kept" in lines.process.stderr.read()
    report = json.loads(localctx("ask", folder / "renamed.txt", "How long is river 9?", "--json").stdout)
    assert report["tokens"]["reused"] > 600
    assert localctx("library", "verify").returncode == 0


def test_once_reads_what_is_there_and_ends(environment, folder, run):
    write(folder, "good.txt")
    (folder / "bad.txt").write_bytes(b"\x89PNG\r\n\x1a\n")
    done = run("library", "watch", folder, "--once")
    assert done.returncode == 3
    assert f"{folder / 'good.txt'}: ready, " in done.stdout
    assert "is a picture" in done.stderr
    listed = run("library", "watch", "--list").stdout.splitlines()
    assert listed[1].split() == [str(folder), "1", "0", "1", "0"]
    again = run("library", "watch", "--once", "--json")
    assert [json.loads(line)["news"] for line in again.stdout.splitlines()] == ["failed"]
    assert "no longer watched" in run("library", "watch", "--remove", folder).stdout
    assert "No folder is watched" in run("library", "watch", "--list").stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "no folder is watched; name one"),
        (["--remove"], "--remove needs a FOLDER"),
        (["--remove", "nowhere"], "is not watched"),
        (["nowhere"], "is not a folder"),
        (["--read-ahead", "soon", "."], "read_ahead = 'soon' is not valid"),
    ],
)
def test_mistakes_are_one_line(environment, run, arguments, problem):
    done = run("library", "watch", *arguments)
    assert done.returncode == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_second_watcher_leaves_it_to_the_first(environment, folder, home, run):
    from localctx.store.process_locks import the_watcher

    home.mkdir()
    with the_watcher(home):
        done = run("library", "watch", folder)
    assert done.returncode == 0
    assert "watches folders already" in done.stderr
    assert str(folder) in run("library", "watch", "--list").stdout
