"""The files of open servers: who is found, who is gone, and whose file is not trusted."""

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from processes import opened

from localctx.serving import open_servers as module
from localctx.serving.open_servers import FOLDER, new_key, open_servers, registered

pytestmark = pytest.mark.slow

HOLD = """
import sys, time
from pathlib import Path
from localctx.serving.open_servers import registered
with registered(Path(sys.argv[1]), "127.0.0.1", 9, "key"):
    print("open", flush=True)
    time.sleep(60)
"""


def files(home: Path) -> list[Path]:
    return sorted((home / FOLDER).iterdir())


def test_a_server_is_found_while_it_is_open(home):
    assert open_servers(home) == []
    with registered(home, "127.0.0.1", 8000, "secret"):
        (server,) = open_servers(home)
        assert (server.host, server.port, server.key, server.pid) == ("127.0.0.1", 8000, "secret", os.getpid())
        assert server.url == "http://127.0.0.1:8000"
        (file,) = files(home)
        assert file.name == f"{os.getpid()}-8000.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert open_servers(home) == files(home) == []


@pytest.mark.parametrize(
    ("host", "reached"),
    [("localhost", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("192.0.2.7", None)],
)
def test_a_server_is_reached_at_this_machines_own_address_or_not_at_all(home, host, reached):
    with registered(home, host, 80, "key"):
        assert [s.url for s in open_servers(home)] == ([f"http://{reached}:80"] if reached else [])


def test_the_newest_is_the_first(home, monkeypatch):
    times = iter((1.0, 3.0, 2.0))
    monkeypatch.setattr(module.time, "time", lambda: next(times))
    with ExitStack() as stack:
        for port in (1, 3, 2):
            stack.enter_context(registered(home, "127.0.0.1", port, "key"))
        assert [s.port for s in open_servers(home)] == [3, 2, 1]


def test_the_file_of_a_server_that_was_killed_is_known_to_be_dead(home):
    line = [sys.executable, "-c", HOLD, str(home)]
    with opened(line, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"open\n"
        assert [s.pid for s in open_servers(home)] == [process.pid]
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        assert len(files(home)) == 1, "it had no time to remove it"
        assert open_servers(home) == []
    assert files(home) == []


def test_another_version_is_not_asked(home, monkeypatch):
    with registered(home, "127.0.0.1", 8000, "key"):
        monkeypatch.setattr(module, "__version__", "0.0.1")
        assert open_servers(home) == []
        assert len(files(home)) == 1, "it is another server's"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_that_others_can_read_or_write_is_not_trusted(home, mode):
    with registered(home, "127.0.0.1", 8000, "key"):
        files(home)[0].chmod(mode)
        assert open_servers(home) == []


def test_a_link_and_a_pipe_are_not_followed(home, tmp_path):
    with registered(home, "127.0.0.1", 8000, "key"):
        (file,) = files(home)
        file.rename(tmp_path / "moved")
        file.symlink_to(tmp_path / "moved")
        os.mkfifo(file.with_name("1-1.json"), 0o600)
        assert open_servers(home) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", json.dumps({"host": "127.0.0.1", "more": 1})])
def test_a_file_that_says_nothing_is_passed_over(home, text):
    with registered(home, "127.0.0.1", 8000, "key"):
        files(home)[0].write_text(text)
        assert open_servers(home) == []


def test_a_folder_that_cannot_be_written_costs_only_the_registration(tmp_path):
    (tmp_path / "file").touch()
    with registered(tmp_path / "file", "127.0.0.1", 8000, "key"):
        assert open_servers(tmp_path / "file") == []


def test_keys_are_long_and_differ():
    assert len({new_key() for _ in range(10)}) == 10
    assert len(new_key()) > 40
