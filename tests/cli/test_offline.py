"""Offline: what needs another machine is refused with a remedy, and all else makes no connection to one."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from ask_in_process import PLAIN
from command_checks import assert_one_line

from localctx import network
from localctx.errors import OfflineError
from localctx.settings import load_settings

pytestmark = pytest.mark.slow

WATCH = """
import sys
def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[1][0] if event.count("e") > 9 or isinstance(arguments[1], tuple) else arguments[0]
        if isinstance(host, str) and host not in ("127.0.0.1", "::1", "localhost", "") and "/" not in host:
            with open({file!r}, "a") as f:
                f.write(f"{event} {host}\\n")
sys.addaudithook(watch)
"""
COMMANDS = """
import json, sys
from localctx import cli
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["localctx", *arguments]
    code = cli.run()
    print("CODE", code, arguments[:2], flush=True)
"""


@pytest.fixture
def offline(home):
    """A data folder for which localctx is offline."""
    network.go_offline()


@pytest.mark.parametrize("value", ["on", "1", "TRUE", "yes"])
def test_the_setting_and_the_variable_are_one(home, value):
    assert not network.is_offline()
    home.mkdir()
    (home / "settings.toml").write_text(f"offline = {value!r}\n")
    assert load_settings().offline == value
    assert network.is_offline()


def test_no_socket_leaves_the_machine(offline):
    with pytest.raises(OfflineError):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    with pytest.raises(OfflineError):
        socket.getaddrinfo("example.com", 80)
    with pytest.raises(OfflineError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", ("192.0.2.1", 53))
    with pytest.raises(OfflineError), socket.socket(socket.AF_INET6) as s:
        s.connect(("2001:db8::1", 80))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()
    assert socket.getaddrinfo("localhost", 80)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "::ffff:127.0.0.1", None, "", b"127.0.0.1", "0.0.0.0"]
)
def test_this_machine_is_told_from_others(host):
    assert network.is_this_machine(host)
    for other in ("127.0.0.1.evil.com", "localhost.evil.com", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "a b"):
        assert not network.is_this_machine(other)


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (["ask", "{document}", "Why?", "--model", "qwen3-0.6b"], "qwen3-0.6b is not on this machine", "models pull"),
        (["ask", "{document}", "Why?", "--model", "a/b"], "a/b is not on this machine", "models pull"),
        (["models", "pull", "qwen3-0.6b"], "qwen3-0.6b is not on this machine", "without --offline"),
        (["summarize", "{document}", "--server", "http://192.0.2.1:1/"], "is another machine", "server"),
        (["serve", "--host", "0.0.0.0", "--model", "{model}"], "0.0.0.0 can be reached", "--host"),
    ],
)
def test_what_needs_another_machine_is_refused_with_a_remedy(run, document, tiny_model, arguments, problem, remedy):
    filled = [str(a).format(document=document, model=tiny_model) for a in arguments]
    done = run(*filled, "--offline")
    done.stderr = done.stderr.splitlines(keepends=True)[-1]  # a batch says before that how far it came
    assert_one_line(done, 1, problem, remedy)


def test_the_whole_journey_makes_no_connection(home, tmp_path, document, tiny_model):
    contacts = tmp_path / "contacts"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WATCH.replace("{file!r}", repr(str(contacts))))
    environment = {f"LOCALCTX_{k.upper()}": str(v) for k, v in {**PLAIN, "max_tokens": 4, "model": tiny_model}.items()}
    environment = {**os.environ, **environment, "PYTHONPATH": str(tmp_path / "site"), "LOCALCTX_EMBEDDER": "none"}
    environment.pop("HF_HUB_OFFLINE", None)
    commands = [
        ["library", "add", str(document)],
        ["ask", str(document), "How long is river 7?"],
        ["chat", str(document)],
        ["summarize", str(document), "--length", "short"],
        ["library", "search", "river"],
        ["prepare", str(document)],
        ["plan"],
    ]
    command = [sys.executable, "-c", COMMANDS, json.dumps([[*c, "--offline"] for c in commands])]
    done = subprocess.run(command, input="How long?\n", capture_output=True, text=True, env=environment, timeout=300)
    assert re.findall(r"^CODE (\d+)", done.stdout, re.MULTILINE) == ["0"] * len(commands), done.stdout + done.stderr
    for command in (["serve", "--port", "0"], ["ui", "--port", "0", "--no-browser"]):
        answered = start_and_stop([sys.executable, "-m", "localctx", *command, "--offline"], environment)
        assert answered == 200
    assert not contacts.exists(), contacts.read_text()


def start_and_stop(command: list[str], environment: dict[str, str]) -> int:
    """Starts a server, asks it for its first page, and ends it; returns the status of the answer."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        line = next(line for line in process.stdout if "http://" in line)
        address = re.search(r"http://\S+", line)[0]
        address = address.replace("/v1", "/health") if command[3] == "serve" else address
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(address, timeout=60) as answer:
            status = answer.status
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        process.wait(60)
    return status
