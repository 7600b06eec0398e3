"""Adding: files dropped or named are read into the library one by one, each seen on its way."""

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.batch.jobs import shown
from localctx.engine.events import Note, Progress
from localctx.errors import Cancelled
from localctx.library.find import find_documents
from localctx.serving.worker import SessionJob
from localctx.ui import library_table, render
from localctx.ui.job_events import follow, in_words, picture
from localctx.ui.library_table import IncomingFile
from localctx.ui.window import AppWindow, tab_of

if TYPE_CHECKING:
    from localctx.session import Session

NAMED = 5  # of what a folder holds and is not read, told one by one
OCR = (("Where a page has no text", "auto"), ("Every page", "on"), ("Never", "off"))

Updates = dict[Any, Any]


def place_of(typed: str) -> str:
    """Where a path is that was typed here; ``-`` is a file by that name, not the server's standard input."""
    return str(Path(os.path.expanduser(typed.strip())).absolute())  # noqa: PTH111 (pathlib's fails for ~nobody)


class PassedOver:
    """Hears of what a folder holds and is not read."""

    def __init__(self) -> None:
        self._told = list[str]()

    def __call__(self, file: str, why: str) -> None:
        """It is not read, and why."""
        self._told.append(f"{shown(file)} {why}: passed over")

    @property
    def lines(self) -> list[str]:
        """The first of it one by one, and how much more there is."""
        more = len(self._told) - NAMED
        return self._told[:NAMED] + ([f"{more:,} more passed over"] if more > 0 else [])


class AddingPanel:
    """Where documents come in, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self) -> None:
        """Where to drop files, where to name them, how far they are."""
        self.drop = gr.File(label="Drop documents here", file_count="multiple", elem_id="drop", height=180)
        self.path = gr.Textbox(
            "",
            label="Or name a file or a folder of this machine",
            placeholder="~/Documents/reports",
            elem_id="path",
            max_lines=1,
            submit_btn="Read",
        )
        self.ocr = gr.Radio(OCR, value=self._window.settings.ocr, label="Read pages of PDFs as pictures", elem_id="ocr")
        self.cancel = gr.Button("Cancel", size="sm", visible=False, elem_id="cancel-adding")
        self.queue = gr.HTML("", elem_id="queue")

    def wire(self, refresh: Callable[[Any], Any]) -> None:
        """Connect what was built; ``refresh`` is told of the events after which there are other documents."""
        here = [self.queue, self.cancel, self.drop, self.path]
        how: dict[str, Any] = {"outputs": here, "show_progress": "hidden", "api_visibility": "private"}
        refresh(self.drop.upload(self._dropped, [self.drop, self.ocr], concurrency_limit=None, **how))
        refresh(self.path.submit(self._named, [self.path, self.ocr], concurrency_limit=None, **how))
        self.cancel.click(self.stop, None, None, queue=False, api_visibility="private")

    def stop(self, request: gr.Request) -> None:
        """Stop reading for the tab that asks; what was read stays."""
        self._window.stop(tab_of(request, "adding"))

    def _dropped(self, files: Sequence[str], ocr: str, request: gr.Request) -> Iterator[Updates]:
        yield from self._read([IncomingFile(f, Path(f).name) for f in map(str, files or [])], [], ocr, request)

    def _named(self, path: str, ocr: str, request: gr.Request) -> Iterator[Updates]:
        passed_over = PassedOver()
        wanted = [place_of(path)] if path.strip() else []
        found = find_documents(wanted, passed_over)
        yield from self._read([IncomingFile(f, f) for f in found], passed_over.lines, ocr, request)

    def _read(self, entries: list[IncomingFile], notes: list[str], ocr: str, request: gr.Request) -> Iterator[Updates]:
        """Pictures of the files on their way in, each a turn of its own, so that others get theirs between them."""
        if not entries:
            yield {self.queue: "".join(map(render.note, [*notes, "There is no document in that place."]))}
            return

        def seen(more: str = "") -> Updates:  # all of it each time: a page that is busy loses what is soon followed
            shown = {self.cancel: gr.update(visible=True), self.drop: gr.update(interactive=False)}
            return {self.queue: library_table.queue(entries) + more, self.path: gr.update(interactive=False), **shown}

        yield seen()
        try:
            for entry in entries:
                for _ in self._one(entry, ocr, request):
                    yield seen()
            for bar in self._index({e.id for e in entries if e.id}, notes, request):
                yield seen(bar)
        except Cancelled:
            notes.append("stopped; what was read stays")
            for entry in entries:
                entry.stop()
        except Exception as e:
            notes.append(in_words(e))
        yield {
            self.queue: library_table.queue(entries) + "".join(map(render.note, notes)),
            self.cancel: gr.update(visible=False),
            self.drop: gr.update(value=None, interactive=True),
            self.path: gr.update(interactive=True),
        }

    def _one(self, entry: IncomingFile, ocr: str, request: gr.Request) -> Iterator[None]:
        def job(session: "Session") -> Generator[Any, None, None]:
            with session.workflows.library() as shelving:
                yield from shelving.add([entry.path], ocr)

        start = time.monotonic()
        for _ in self._follow(job, entry.hear, request):
            entry.seconds = entry.seconds if entry.id else time.monotonic() - start
            yield

    def _index(self, documents: set[str], notes: list[str], request: gr.Request) -> Iterator[str]:
        """Make what was read searchable; pictures of that, and why it is by words alone in ``notes``."""

        def job(session: "Session") -> Generator[Any, None, None]:
            with session.workflows.library() as shelving:
                if why := shelving.index(documents):
                    yield Note(why)

        bar = ""

        def hear(event: Any) -> None:
            nonlocal bar
            if isinstance(event, Progress):
                bar = picture(event)
            elif isinstance(event, Note):
                notes.append(event.text)

        for _ in self._follow(job, hear, request):
            yield bar

    def _follow(self, job: SessionJob, hear: Callable[[Any], None], request: gr.Request) -> Iterator[None]:
        window = self._window
        yield from follow(window.ask_promptly(tab_of(request, "adding"), job, window.shelver), hear)
