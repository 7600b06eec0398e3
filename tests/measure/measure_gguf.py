"""GGUF questions through llama.cpp: ``python measure_gguf.py restart|server MODEL.gguf TEXT [more]``.

``restart MODEL.gguf TEXT [TOKENS] [KV]``: a kept document is asked again after a restart: seconds until the first
token, and what was reused. Each question is asked in a process of its own, after the model is loaded. The answers of
the cold and the reopened document are compared.

``server MODEL.gguf TEXT [TOKENS] [TURNS] [DOCUMENTS]``: beside llama-cpp-python's own server, in one run: seconds until
the first token, and of a chat and a batch. Both have one thread and the same messages. The server keeps what it read
last in RAM; we keep it on disk too. A batch is our batch, whose documents are computed side by side; the server takes
one request at a time.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import harness
import httpx
from in_memory_output import Kept

from localctx.batch.jobs import DocumentJob
from localctx.batch.run_batch import Batch, Outcome
from localctx.batch.side_by_side import run_side_by_side
from localctx.engine.events import Done, Token
from localctx.engine.prompt_wording import ASK, content
from localctx.session import Session
from localctx.settings import load_settings
from localctx.workflows.summary_task import SummaryTask

FIRST, SECOND, LIMIT = "What is this text about?", "Who is it written for?", 16
Timed = tuple[float, float, str]


# --- After a restart


def asked(home: str, model: str, text: str, kv: str) -> None:
    """Ask in this process; prints what it cost."""
    settings = load_settings(
        home=Path(home), model=model, engine="llama.cpp", kv=kv, mode="full", embedder="none", max_tokens=24, threads=1
    )
    with Session(settings) as session:
        session.runtime.load()
        answer = session.ask(FIRST, [text])
    stats = answer.stats
    print(json.dumps({"text": answer.text, "prompt": stats.prompt, "reused": stats.reused, **stats.seconds}))


def restart(model: str, text: str, tokens: str = "6000", kv: str = "auto") -> None:
    """Ask the first ``tokens`` of the file ``text`` twice in a new data folder, and print both."""
    with tempfile.TemporaryDirectory() as folder:
        from localctx.models.llama_cpp.model import load_llama_model

        tokenizer = load_llama_model(Path(model), model, Path(folder) / "tried", threads=1).tokenizer
        stream = tokenizer.stream()
        cut = "".join(stream(token) for token in tokenizer.encode(Path(text).read_text())[: int(tokens)])
        document = Path(folder) / "text.txt"
        document.write_text(cut)
        runs = []
        for _ in range(3):
            command = [sys.executable, __file__, "ask", folder, model, str(document), kv]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout))
            print(runs[-1], flush=True)
    cold, warm = runs[0]["first_token"], min(run["first_token"] for run in runs[1:])
    share = runs[1]["reused"] / runs[1]["prompt"]
    same = len({run["text"] for run in runs}) == 1
    print(f"first token {cold:.2f} s cold, {warm:.3f} s reopened: {cold / warm:.0f} times sooner")
    print(f"reused {share:.1%}; the same answers: {same}")


# --- Beside a server


class Ours:
    """A session, as after a start."""

    def __init__(self, home: Path, model: str) -> None:
        self.session = Session(
            load_settings(
                home=home, model=model, engine="llama.cpp", mode="full", embedder="none", threads=1, max_tokens=LIMIT
            )
        )
        self.session.runtime.load()
        self.chat = None

    def ask(self, text: Path, question: str) -> Timed:
        return self._timed(self.session.stream(question, [str(text)]))

    def batch(self, texts: Sequence[Path], question: str) -> float:
        jobs, start = [DocumentJob(str(path), str(path), path.stat().st_size) for path in texts], time.perf_counter()
        with self.session.workflows.summaries() as summarizing:
            batch = Batch(summarizing, SummaryTask(questions=(question,)), [Kept()])
            told = run_side_by_side(batch.run, jobs, self.session.forward_each, self.session.runtime.cancelled)
            done = [what for _, what in told if isinstance(what, Outcome)]
        assert [outcome.status for outcome in done] == ["done"] * len(texts), [outcome.why for outcome in done]
        return time.perf_counter() - start

    def say(self, text: Path, question: str) -> Timed:
        self.session.sources = (str(text),)
        self.chat = self.chat or self.session.chat()
        return self._timed(self.chat.stream(question))

    def close(self) -> None:
        self.session.close()

    def _timed(self, events: Iterator) -> Timed:
        start, first, text = time.perf_counter(), 0.0, ""
        for event in events:
            if isinstance(event, Token):
                first = first or time.perf_counter() - start
                text += event.text
            assert not isinstance(event, Done) or not event.failed
        return first, time.perf_counter() - start, text


class Server:
    """llama-cpp-python's server in a process of its own, as after a start."""

    def __init__(self, model: str) -> None:
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "llama_cpp.server", "--model", model, "--port", str(self.port)]
        command += ["--n_ctx", "8192", "--n_threads", "1", "--n_threads_batch", "1", "--logits_all", "False"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url, self.said = f"http://127.0.0.1:{self.port}/v1", list[dict[str, str]]()
        for _ in range(600):
            try:
                if httpx.get(f"{self.url}/models").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)

    def ask(self, text: Path, question: str) -> Timed:
        return self._timed([{"role": "user", "content": content([text.read_text()], question, ASK)}])

    def batch(self, texts: Sequence[Path], question: str) -> float:
        return sum(self.ask(text, question)[1] for text in texts)

    def say(self, text: Path, question: str) -> Timed:
        words = question if self.said else content([text.read_text()], question, ASK)
        self.said.append({"role": "user", "content": words})
        timed = self._timed(self.said)
        self.said.append({"role": "assistant", "content": timed[2]})
        return timed

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _timed(self, messages: list[dict[str, str]]) -> Timed:
        body = {"messages": messages, "max_tokens": LIMIT, "temperature": 0, "stream": True}
        start, first, text = time.perf_counter(), 0.0, ""
        with httpx.stream("POST", f"{self.url}/chat/completions", json=body, timeout=600) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {") and (delta := json.loads(line[6:])["choices"][0]["delta"].get("content")):
                    first = first or time.perf_counter() - start
                    text += delta
        return first, time.perf_counter() - start, text


@contextmanager
def opened(make) -> Iterator:
    engine = make()
    try:
        yield engine
    finally:
        engine.close()


def server(model: str, file: str, tokens: str = "1200", turns: str = "10", documents: str = "20") -> None:
    """Print a line for each comparison: ours, the server's, and how many times sooner ours is."""
    with tempfile.TemporaryDirectory() as folder:
        words = Path(file).read_text()
        text = Path(folder) / "text.txt"
        text.write_text(words[: 4 * int(tokens)])
        short = [Path(folder) / f"{i}.txt" for i in range(int(documents))]
        for i, path in enumerate(short):
            path.write_text(words[5000 + 500 * i :][:500])
        results = {}
        for name, make in (("ours", lambda: Ours(Path(folder) / "home", model)), ("server", lambda: Server(model))):
            with opened(make) as engine:
                cold = engine.ask(text, FIRST)[0]
                second = engine.ask(text, SECOND)[0]
                chat = sum(engine.say(text, f"What else does it say, point {i}?")[1] for i in range(int(turns)))
                batch = engine.batch(short, FIRST)
            with opened(make) as engine:
                restarted = engine.ask(text, SECOND)[0]
            results[name] = {"cold": cold, "second": second, "chat": chat, "batch": batch, "restarted": restarted}
            print(name, {k: round(v, 3) for k, v in results[name].items()}, flush=True)
        for what in results["ours"]:
            ours, theirs = results["ours"][what], results["server"][what]
            print(f"{what}: ours {ours:.3f} s, the server {theirs:.3f} s, {theirs / ours:.2f} times")


if __name__ == "__main__":
    harness.run(
        __doc__,
        restart=lambda arguments: restart(*arguments),
        server=lambda arguments: server(*arguments),
        ask=lambda arguments: asked(*arguments),  # for a process of ``restart``
    )
