"""The window in a real browser: the command as a child, Chromium, and a watch on what pages may never do."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from clock import PATIENCE
from tiny_models import save_sharp_model

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-component-update"]
LONG = 1 << 17  # positions of the model: room for a text that takes it many seconds to read


def find_chromium(playwright) -> str | None:
    """The system's Chromium, else Playwright's own where the system has the libraries that it needs."""
    if program := next(filter(None, map(shutil.which, NAMES)), None):
        return program
    own = playwright.chromium.executable_path
    runs = Path(own).exists() and not subprocess.run([own, "--version"], capture_output=True).returncode
    return own if runs else None


RUNNING: list[Any] = []  # browsers


def texts_shown() -> list[str]:
    """What each page of the running browsers shows."""
    pages = [page for browser in RUNNING for context in browser.contexts for page in context.pages]
    return [f"{page.url.partition('?')[0]}\n{page.locator('body').inner_text(timeout=2000)}" for page in pages]


@contextmanager
def launched() -> Iterator:
    """A Chromium that runs; the test is skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        if not (program := find_chromium(playwright)):
            pytest.skip("no Chromium on this machine")
        sync_api.expect.set_options(timeout=PATIENCE * 1000)
        with playwright.chromium.launch(executable_path=program, args=FLAGS) as browser:
            for name in ("new_context", "new_page"):
                setattr(browser, name, partial(_patient, getattr(browser, name)))
            RUNNING.append(browser)
            yield browser
            RUNNING.remove(browser)


def _patient(opens: Callable[..., Any], **how: Any) -> Any:
    """A context or page that waits ``PATIENCE`` seconds for anything."""
    opened = opens(**how)
    opened.set_default_timeout(PATIENCE * 1000)
    return opened


def save_saying_model(folder: Path, texts: Sequence[str]) -> Path:
    """A tiny model that says ``texts`` and nothing else, each of them one token; it never ends by itself."""
    import torch
    from safetensors.torch import load_file, save_file
    from tokenizers import pre_tokenizers

    save_sharp_model(folder, seed=0)
    file, first, end = folder / "tokenizer.json", 256, 256 + len(texts)  # where ids of texts begin and end
    tokenizer, letters = json.loads(file.read_text()), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer["model"]["vocab"] |= {letters.pre_tokenize_str(t)[0][0]: first + i for i, t in enumerate(texts)}
    tokenizer["added_tokens"] = [t | {"id": end + i} for i, t in enumerate(tokenizer["added_tokens"])]
    file.write_text(json.dumps(tokenizer))
    weights, random = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(1)
    weights["model.embed_tokens.weight"] = torch.randn(end + 2, 64, generator=random)
    weights["lm_head.weight"] = torch.zeros(end + 2, 64)  # logit 0: some text is likelier
    weights["lm_head.weight"][first:end] = torch.randn(len(texts), 64, generator=random)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    for name in ("config.json", "generation_config.json"):
        config = json.loads((folder / name).read_text()) | {"bos_token_id": end, "eos_token_id": end + 1}
        config |= {"vocab_size": end + 2, "max_position_embeddings": LONG} if name == "config.json" else {}
        (folder / name).write_text(json.dumps(config))
    return folder


@dataclass
class Served:
    """A running window: the address with its key, and the data folder."""

    url: str
    home: Path
    process: subprocess.Popen

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def _after_browsers() -> None:
    """Let browsers go first: a tiny model says hundreds of words a second, and takes all that a processor has."""
    os.nice(10)


@contextmanager
def served(home: Path, *flags: object) -> Iterator[Served]:
    """``localctx ui`` on a free port, with a data folder of its own."""
    command = [sys.executable, "-m", "localctx", "ui", "--port", "0", "--no-browser", *map(str, flags)]
    environment = {**os.environ, "LOCALCTX_HOME": str(home), "LOCALCTX_EMBEDDER": "none"}
    with (home.parent / "ui.log").open("w") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=_after_browsers
        )
    try:
        line = process.stdout.readline()
        address = re.search(r"http\S+", line)
        assert address, (home.parent / "ui.log").read_text()
        yield Served(address.group(), home, process)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


@dataclass
class Watch:
    """What pages did that no page may do: dialogs, script errors, requests to any place but ``origin``."""

    origin: str
    seen: list[str] = field(default_factory=list)

    def over(self, page):
        """Watch a page, too."""
        page.on("dialog", self._dialog)
        page.on("pageerror", lambda e: self.seen.append(f"error: {e}"))
        page.on(
            "console", lambda m: self.seen.append(f"console: {m.text} {m.location['url']}") if self._wrong(m) else None
        )
        page.on("request", lambda r: None if self._ours(r.url) else self.seen.append(f"request: {r.url}"))
        return page

    def _wrong(self, message) -> bool:
        left = (
            "AbortError",
            "Connection errored out",
        )  # gradio, when a page is left in the middle
        return message.type == "error" and not any(word in message.text for word in left)

    def _ours(self, url: str) -> bool:
        return url.startswith((f"{self.origin}/", "data:", f"blob:{self.origin}/"))

    def _dialog(self, dialog) -> None:
        self.seen.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextmanager
def canary() -> Iterator[tuple[str, list[str]]]:
    """A server on another port of this machine: its address, and what it was asked for."""
    hits: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hits.append(f"{self.command} {self.path}")
            self.send_response(204)
            self.end_headers()

        do_POST = do_HEAD = do_OPTIONS = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", hits
    finally:
        server.shutdown()
        server.server_close()


class Tab:
    """A page of the window, by what its user does and sees."""

    def __init__(self, page) -> None:
        self.page = page
        self.box = page.locator("#question textarea")
        self.conversation, self.status = page.locator("#conversation"), page.locator("#status")
        self.stop = page.locator("#question .stop-button")

    def open(self, url: str) -> "Tab":
        """Go to an address; returns when questions can be asked."""
        self.page.goto(url)
        self.box.wait_for()
        self.page.wait_for_function("window.lcDrafts")  # page.js has run: keys are heard
        return self

    def drop(self, name: str, data: bytes) -> None:
        """Let a file fall into the question box, and wait until it is uploaded."""
        self.start_drop(name, data)
        self.page.locator("#question .thumbnail-item").first.wait_for(state="attached")

    def start_drop(self, name: str, data: bytes) -> None:
        """Let a file fall into the question box."""
        script = """([name, data]) => { const all = new DataTransfer()
            all.items.add(new File([Uint8Array.from(atob(data), c => c.charCodeAt(0))], name)); return all }"""
        files = self.page.evaluate_handle(script, [name, b64encode(data).decode()])
        box = self.page.locator("#question .full-container")
        for event in ("dragenter", "dragover", "drop"):
            box.dispatch_event(event, {"dataTransfer": files})

    def ask(self, question: str) -> None:
        """Ask with the keyboard; returns when the question is taken: its box is empty, and it is shown if it can be."""
        shown = "document.querySelectorAll('#conversation [data-testid=user]').length"
        before = self.page.evaluate(shown)
        self.box.fill(question)
        self.box.press("Enter")
        self.page.wait_for_function("!document.querySelector('#question textarea').value", polling=20)
        with suppress(Exception):  # what cannot be asked is not shown
            self.page.wait_for_function(f"before => {shown} > before", arg=before, polling=20, timeout=5000)

    def wait_for(self, text: str, where: str = "#status", seconds: float = PATIENCE) -> str:
        """Wait until ``text`` is shown; all that is shown there then."""
        script = "([where, text]) => document.querySelector(where)?.innerText.includes(text)"
        self.page.wait_for_function(script, arg=[where, text], timeout=seconds * 1000, polling=20)
        return self.page.locator(where).inner_text()

    def use_menu(self, action: str, chat: str = "[aria-current]") -> None:
        """Choose an action in the menu of a chat: the open one, or that with a selector."""
        row = self.page.locator(f"#chats li:has({chat})")
        row.hover()
        row.locator(".lc-menu summary").click()
        row.get_by_role("button", name=action, exact=True).click()

    def read_share(self) -> int:
        """How much of the last answer's prompt was already read, in percent, once that is shown."""
        shares = "[...document.querySelector('#conversation').textContent.matchAll(/(\\d+) % already read/g)]"
        return int(self.page.wait_for_function(f"{shares}.at(-1)?.[1]", polling=20).json_value())

    def details(self) -> str:
        """Wait until the last answer is stored; what its details say."""
        self.page.locator("#conversation .lc-cost").last.wait_for(state="attached")
        return self.page.locator("#conversation .lc-cost").last.text_content()

    def answer(self) -> str:
        """Wait for the end of what was asked; the whole conversation."""
        self.page.locator("#question .submit-button").wait_for()
        return self.conversation.inner_text()
