"""A server that speaks as OpenAI's does, in a thread, with the faults that a test asks for."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "parrot"
Fault = Callable[["Handler"], None]


class FakeServer(ThreadingHTTPServer):
    """Says the last sentence of the text it is given. A word is a token; of more than ``window`` it refuses.

    ``tell``: how it tells its window (vllm, llama.cpp, or not at all). ``faults`` are what becomes of the next
    questions. ``asked`` has every question, ``most`` how many there were at a time.
    """

    daemon_threads = True

    def __init__(self, window: int = 4096, tell: str = "", faults: list[Fault] | None = None, key: str = "") -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.window, self.tell, self.faults, self.key = window, tell, faults or [], key
        self.always: Fault | None = None
        self.slow, self.usage, self.models = 0.0, True, [MODEL]
        self.asked = list[dict[str, Any]]()
        self.lock, self.busy, self.most, self.left = threading.Lock(), 0, 0, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def contents(self) -> list[str]:
        return [body["messages"][-1]["content"] for body in self.asked]

    def handle_error(self, request, client_address) -> None:
        self.left += 1


class Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self._stranger():
            return
        if self.path == "/v1/models":
            more = {"max_model_len": self.server.window} if self.server.tell == "vllm" else {}
            self.say(200, {"object": "list", "data": [{"id": name, **more} for name in self.server.models]})
        elif self.path == "/props" and self.server.tell == "llama.cpp":
            self.say(200, {"default_generation_settings": {"n_ctx": self.server.window}})
        else:
            self.say(404, {"error": {"message": "nothing is here"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self._stranger():
            return
        server = self.server
        with server.lock:
            server.asked.append(body)
            fault = server.faults.pop(0) if server.faults else server.always
            server.busy += 1
            server.most = max(server.most, server.busy)
        try:
            fault(self) if fault else self.answer(body)
        finally:
            with server.lock:
                server.busy -= 1

    def answer(self, body: dict[str, Any]) -> None:
        content = body["messages"][-1]["content"]
        count, window = len(content.split()), self.server.window
        if body["model"] not in self.server.models:
            self.say(404, {"error": {"message": f"The model {body['model']} does not exist."}})
        elif count + body["max_tokens"] > window:
            self.say(
                400, {"error": {"message": f"This model's maximum context length is {window} tokens, not {count}."}}
            )
        else:
            self.stream(_last(content), count) if body["stream"] else self.at_once(_last(content), count)

    def at_once(self, said: str, count: int) -> None:
        usage = {"prompt_tokens": count, "completion_tokens": len(said.split())}
        self.say(200, {"choices": [{"message": {"content": said}, "finish_reason": "stop"}], "usage": usage})

    def stream(self, said: str, count: int, cut: bool = False) -> None:
        words = re.findall(r"\S+\s*", said)
        self.begin("text/event-stream")
        for word in words[: 1 if cut else None]:
            time.sleep(self.server.slow)
            self.event({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
        if cut:
            return
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if self.server.usage:
            details = {"prompt_tokens_details": {"cached_tokens": 2}}
            self.event({"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": len(words), **details}})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()

    def say(self, status: int, value: Any, **headers: str) -> None:
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(value.encode() if isinstance(value, str) else json.dumps(value).encode())

    def begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def _stranger(self) -> bool:
        if not self.server.key or self.headers.get("authorization") == f"Bearer {self.server.key}":
            return False
        self.say(401, {"error": {"message": f"Incorrect key: {self.headers.get('authorization')}"}})
        return True


def status(code: int, message: str = "a fault", **headers: str) -> Fault:
    """Refuse with a status."""
    return lambda handler: handler.say(code, {"error": {"message": message}}, **headers)


def words(text: str, kind: str = "text/event-stream") -> Fault:
    """Answer just this."""

    def fault(handler: Handler) -> None:
        handler.begin(kind)
        handler.wfile.write(text.encode())

    return fault


def cut(handler: Handler) -> None:
    """Break off in the middle of an answer."""
    handler.stream("Never said to its end.", 3, cut=True)


def silent(handler: Handler) -> None:
    """Say nothing for a long time."""
    handler.begin("text/event-stream")
    handler.wfile.flush()
    for _ in range(600):
        time.sleep(0.05)
        handler.wfile.write(b": wait\n")


@contextmanager
def fake_server(**how: Any) -> Iterator[FakeServer]:
    server = FakeServer(**how)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _last(content: str) -> str:
    """The last sentence before the instruction."""
    text = content.rpartition("\n\n")[0].strip()
    return re.split(r"(?<=[.])\s+|\n\n", text)[-1]
