"""Twenty pages are asked ten questions, and again after a restart: ``python measure_journey.py [--pages 20]``.

localctx reads the beginning of its documentation and answers, as it is and in its own words. So does the server of
llama-cpp-python, with the GGUF that the model was published as; it keeps the cache of the last prompt in RAM. Each runs
in a process of its own, first with nothing kept, then once more, as after a restart. Prints the seconds from the start
of the process to the first answer and to the tenth.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import harness  # noqa: F401
import httpx

from localctx.docs import page
from localctx.engine.prompt_wording import ASK, content
from localctx.models.choice.default_model import choose_model
from localctx.models.files.gguf_file import open_gguf
from localctx.models.hub.resolve import resolve_model
from localctx.models.llama_cpp.library import llama_library
from localctx.models.llama_cpp.trial import can_repack
from localctx.models.peers.llama_cpp import repacking
from localctx.models.peers.published import fetch_published, published_file
from localctx.session import Session
from localctx.settings import load_settings

WORDS = 500  # of a page of paper
TOPICS = ("asking", "memory", "library", "models", "tables", "quality")
QUESTIONS = (
    "What does a smaller codec save?",
    "Where are pages moved when a budget is used up?",
    "Which eviction policy loses nothing?",
    "What encrypts the objects of a remote store?",
    "How long does localctx wait for uploads when it ends?",
    "What happens when a document is asked again?",
    "What is a collection?",
    "Which documents can be read?",
    "What does the table command do?",
    "How is the quality of a codec measured?",
)
LIMIT = 48  # tokens of an answer
TABLE = """| | first answer, s | tenth answer, s | first after a restart | tenth after a restart |
|---|---|---|---|---|"""
OWN_WORDS = {"answers": "free", "careful": "off", "max_tokens": LIMIT}


def own_answers(home: str, file: str, changes: str) -> None:
    """Answer all questions in this process, and print each answer."""
    settings = load_settings(home=Path(home), mode="full", embedder="none", **json.loads(changes))
    with Session(settings) as session:
        for question in QUESTIONS:
            print(json.dumps(session.ask(question, [file]).text), flush=True)


def serve(gguf: str, port: str, flash: str) -> None:
    """Be llama-cpp-python's server, with weights repacked for this processor where llama.cpp can compute with them."""
    threads = str(os.cpu_count())
    sys.argv = ["llama_cpp.server", "--model", gguf, "--port", port, "--n_ctx", "32768", "--flash_attn", flash]
    sys.argv += ["--n_threads", threads, "--n_threads_batch", threads, "--logits_all", "False"]
    library = llama_library()
    from llama_cpp.server.__main__ import main as server

    with repacking(library, can_repack(open_gguf(Path(gguf)))):
        server()


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """This script in a process of its own, ended with the block."""
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def ask_localctx(home: Path, file: Path, changes: dict[str, object]) -> Iterator[str]:
    """Yields the answers of localctx."""
    with child("own_answers", str(home), str(file), json.dumps(changes)) as process:
        assert process.stdout
        yield from map(json.loads, process.stdout)


def ask_server(gguf: Path, file: Path, flash: bool) -> Iterator[str]:
    """Yields the answers of llama-cpp-python's server."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    with child("serve", str(gguf), str(port), str(flash)):
        wait_for(f"{url}/models")
        for question in QUESTIONS:
            messages = [{"role": "user", "content": content([file.read_text()], question, ASK)}]
            body = {"messages": messages, "max_tokens": LIMIT, "temperature": 0}
            answer = httpx.post(f"{url}/chat/completions", json=body, timeout=1800).raise_for_status().json()
            yield answer["choices"][0]["message"]["content"]


def wait_for(url: str, seconds: int = 120) -> None:
    """Return as soon as ``url`` answers."""
    for _ in range(seconds * 10):
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise TimeoutError(url)


def timed(answers: Iterator[str]) -> tuple[float, float]:
    """Returns the seconds to the first answer and to the last one."""
    start, times = time.perf_counter(), list[float]()
    for answer in answers:
        times.append(time.perf_counter() - start)
        print(f"  {times[-1]:7.2f} s  {' '.join(answer.split())[:90]}", file=sys.stderr, flush=True)
    assert len(times) == len(QUESTIONS), "see the errors of the process"
    return times[0], times[-1]


def published_gguf() -> Path:
    """Returns the file that the default model was published as, which is downloaded if needed."""
    settings = choose_model(load_settings())
    resolve_model(settings.model, settings.models, lambda phase, done, total: None)
    gguf = published_file(settings.model, settings.models, settings.home / "bench")
    assert gguf, "this model was not published as a GGUF"
    if not gguf.exists():
        fetch_published(settings.model, gguf, lambda phase, done, total: None)
    return gguf


def main() -> None:
    """Print a row for each way of answering, before and after a restart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=20)
    pages = parser.parse_args().pages
    gguf, models = published_gguf(), load_settings().models
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pages.md")
        file.write_text(" ".join(" ".join(page(topic) for topic in TOPICS).split(" ")[: pages * WORDS]))
        homes = [Path(folder, name) for name in ("as-it-is", "own-words")]
        for home in homes:
            home.mkdir()
            (home / "models").symlink_to(models)
        ways = {
            "localctx": lambda: ask_localctx(homes[0], file, {}),
            "localctx, in its own words": lambda: ask_localctx(homes[1], file, OWN_WORDS),
            "llama.cpp's server": lambda: ask_server(gguf, file, False),
            "the same, flash attention": lambda: ask_server(gguf, file, True),
        }
        print(TABLE, flush=True)
        for name, answers in ways.items():
            row = timed(answers()) + timed(answers())
            print(f"| {name} | " + " | ".join(f"{seconds:.1f}" for seconds in row) + " |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] in (["own_answers"], ["serve"]):
        {"own_answers": own_answers, "serve": serve}[sys.argv[1]](*sys.argv[2:])
    else:
        main()
