"""Clients of ``serve`` that hang up: ``python measure_disconnects.py --clients 64 --seconds 300 --seed 1``.

A tiny model is served; each client asks one of a few chats again and again, and leaves some answers at a random moment.
Each answer that is read to its end must be the one that the same chat gets alone: text of one chat never appears in
another. Prints requests, and threads and memory at the beginning and the end.
"""

import argparse
import json
import random
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import harness  # noqa: F401
import psutil
import uvicorn
from clock import wait_until
from tiny_models import save_sharp_model

from localctx.serving.api_access import ApiAccess
from localctx.serving.http import LOOPBACK, listen, server_config
from localctx.serving.openai_server import OpenAIServer
from localctx.settings import load_settings

CHATS = 12
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer key\r\nConnection: close\r\n"


@contextmanager
def served(home: Path, model: Path) -> Iterator[tuple[str, int]]:
    """The address of a server of the model."""
    settings = load_settings(home=home, model=str(model), threads=1, embedder="none", max_tokens=24)
    server = OpenAIServer(settings, 8)
    with closing(server), closing(listen("127.0.0.1", 0)) as sock:
        list(server.load())
        http = uvicorn.Server(server_config(ApiAccess(server.app(), LOOPBACK, "key")))
        thread = threading.Thread(target=http.run, args=([sock],), daemon=True)
        thread.start()
        wait_until(lambda: http.started)
        yield sock.getsockname()
        http.should_exit = True
        thread.join(30)


def ask(address: tuple[str, int], chat: int, stream: bool, patience: float | None = None) -> str | None:
    """The answer to a chat; None from a client that hangs up after ``patience`` seconds."""
    message = {"role": "user", "content": f"Canary {chat:03}. " + f"word{chat} " * 40}
    body = json.dumps({"messages": [message], "stream": stream, "max_tokens": 24}).encode()
    head = f"{HEAD}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(address, timeout=600) as client:
        client.sendall(head + body)
        if patience is not None:
            client.settimeout(patience)
            with suppress(TimeoutError):
                client.recv(1000)
            return None
        received = b""
        while part := client.recv(65536):
            received += part
    assert received.startswith(b"HTTP/1.1 200"), received[:500]
    return _text(received.decode(), stream)


def _text(response: str, stream: bool) -> str:
    if not stream:
        body = response.partition("\r\n\r\n")[2]
        return json.loads(body[body.index("{") : body.rindex("}") + 1])["choices"][0]["message"]["content"]
    events = [line.removeprefix("data: ") for line in response.splitlines() if line.startswith("data: {")]
    return "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events)


def hang_up_at_random(
    address: tuple[str, int], clients: int, seconds: float, number: int, least: int = 1
) -> Counter[str]:
    """Lets ``clients`` ask for so many seconds, and ``least`` times each. Returns how many were answered, and left."""
    alone = [ask(address, chat, False) for chat in range(CHATS)]
    assert len(set(alone)) > CHATS // 2, "answers hang on the chat"
    counts, wrong, end = Counter[str](), list[str](), time.monotonic() + seconds

    def client(i: int) -> None:
        dice, asked = random.Random(number * 1000 + i), 0
        while asked < least or time.monotonic() < end:
            chat, asked = dice.randrange(CHATS), asked + 1
            patience = None if dice.random() < 0.4 else dice.choice((0.01, 0.1, 0.5, 2.0))
            answer = ask(address, chat, dice.random() < 0.5, patience)
            counts["left" if answer is None else "answered"] += 1
            if answer not in (None, alone[chat]):
                wrong.append(f"chat {chat} was told {answer!r}, alone {alone[chat]!r}")

    threads = [threading.Thread(target=client, args=[i]) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    return counts


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("clients", 64), ("seconds", 300), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = save_sharp_model(Path(folder) / "model", seed=0)
        with served(Path(folder) / "home", model) as address:
            print(hang_up_at_random(address, given.clients, 10, given.seed), state(), flush=True)
            counts = hang_up_at_random(address, given.clients, given.seconds, given.seed + 1)
            print(dict(counts), state(), flush=True)


def state() -> str:
    """Threads and memory of this process, which serves and asks."""
    time.sleep(3)
    return f"{threading.active_count()} threads, {psutil.Process().memory_info().rss / 2**20:.1f} MiB"


if __name__ == "__main__":
    main()
