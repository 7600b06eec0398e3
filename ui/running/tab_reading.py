"""Reads documents ahead for one browser tab: the documents of the tab's chat, and the files in its question box.

The library worker parses files as ordinary jobs. Questions come before prefilling: when another job arrives, prefilling
is cancelled and its pages are kept; afterwards it continues.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from localctx.engine.events import Progress
from localctx.errors import Cancelled, ModelError, UserError
from localctx.library.add import Added
from localctx.models.hub.resolve import check_known
from localctx.serving.worker import EngineWorker, SessionJob
from localctx.settings import Settings
from localctx.store.process_locks import at_work
from localctx.ui.job_events import error_text
from localctx.ui.running.read_documents import ReadDocument, adding, describing, known_documents
from localctx.workflows.ahead.document_guide import NOTHING_TOLD
from localctx.workflows.ahead.suggested_questions import Candidates, SuggestedQuestions

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.session import Session
    from localctx.workflows.ahead.readiness import Readiness

MAX_PASSAGES_READ = 150_000  # characters of all documents together; with more, passages are not read ahead
_SHARES = {"pages": (0, 30), "reading": (30, 99), "indexing": (30, 99), "embedding": (30, 99)}
"""The percentages of the whole work at which a phase begins and ends, by the first word of its name."""
MAX_RECENT = 50  # documents of a tab that are remembered
MODEL_CHECKS = 1.0  # seconds between two checks whether the model is installed yet


@dataclass(frozen=True)
class ReadingTarget:
    """The target of a tab's reading: uploaded ``files``, the chat's ``documents`` (ids), and ``until``, the mark up to
    which they are read.

    ``has_messages`` says whether the chat has messages. ``settings`` are the values of those settings that make reading
    again necessary when they change.
    """

    files: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    until: str = ""
    has_messages: bool = False
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadyEvent:
    """The event that reports that the documents are ready for questions. ``ready`` says how ready they are."""

    ready: "Readiness"


@dataclass
class ReadingState:
    """The state of reading ahead, as one tab shows it.

    ``phase`` is ``parsing``, ``no model`` (waiting for a model), ``reading``, ``ready``, ``stopped``, ``failed``, or ""
    if there is nothing to read. ``percent`` is how much of the work is done; it never decreases. ``questions`` are
    suggested questions, from the ``candidates`` or the model.
    """

    wanted: ReadingTarget = ReadingTarget()
    documents: Sequence[ReadDocument] = ()
    phase: str = ""
    progress: Progress | None = None
    ready: "Readiness | None" = None
    error: str = ""
    questions: Sequence[str] = field(default_factory=list)
    candidates: Candidates = field(default_factory=Candidates)
    percent: int = 0

    def advance(self, progress: Progress) -> None:
        """Record the progress of a phase, and update ``percent``."""
        self.progress = progress
        first, last = _SHARES.get(progress.phase.partition(" ")[0], (0, 0))
        share = min(1.0, progress.done / progress.total) if progress.total else 0.0
        self.percent = max(self.percent, round(first + share * (last - first)) if last else 0)

    @property
    def distinct(self) -> dict[int, ReadDocument]:
        """The documents by their places in ``documents``, each once, also if its file was dropped twice."""
        first = dict[str, int]()
        for place, document in enumerate(self.documents):
            first.setdefault(document.document or document.source, place)
        return {place: self.documents[place] for place in first.values()}

    @property
    def is_ready(self) -> bool:
        """True once questions about the documents start at once: they were made ready, or the only one was earlier."""
        return bool(self.ready) or (len(self.documents) == 1 and self.documents[0].read)

    @property
    def busy(self) -> bool:
        """True while files are parsed or documents are read, and while reading waits for a model."""
        return self.phase in ("parsing", "no model", "reading")


class TabReading:
    """Reads documents ahead for one tab, in a thread that runs while there is work. ``on_end`` is called when the
    thread ends.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        library_worker: EngineWorker,
        answer_worker: EngineWorker,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings, self._library_worker, self._answer_worker = settings, library_worker, answer_worker
        self._on_end, self._changed = on_end, threading.Condition()
        self._thread: threading.Thread | None = None
        self.state = ReadingState()
        self._recent: Sequence[ReadDocument] = ()  # the documents wanted now, then earlier ones

    @property
    def unreadable(self) -> frozenset[str]:
        """The files that could not be parsed, for reasons that the tab shows."""
        return frozenset(document.source for document in self.state.documents if document.error)

    def want(self, wanted: ReadingTarget) -> None:
        """Set a new target to read ahead. Documents that were already parsed are not parsed again."""
        wanted = replace(wanted, settings=self._settings().reading_key)
        with self._changed:
            if wanted == self.state.wanted:
                return
            known = self._known(wanted)
            documents = known_documents(wanted.files, wanted.documents, known)
            self._recent = [*documents, *(d for d in known if d not in documents)][:MAX_RECENT]
            self.state = ReadingState(wanted, documents, "parsing" if documents else "")
            self._changed.notify_all()
            if documents and not self._thread:
                self._thread = threading.Thread(target=self._work, name="reading ahead", daemon=True)
                self._thread.start()

    def _known(self, wanted: ReadingTarget) -> Sequence[ReadDocument]:
        """Returns the last documents of the tab. After a change of settings or of the mark, they must be read again."""
        before, documents = self.state.wanted, self._recent
        if before.until != wanted.until:  # what is after the mark must not be told
            documents = [replace(document, guide=NOTHING_TOLD, read=False) for document in documents]
        elif before.settings != wanted.settings:
            documents = [replace(document, read=False) for document in documents]
        return documents

    def refresh(self) -> None:
        """Read the target again if relevant settings changed, such as the model."""
        state = self.state
        if state.documents and state.phase != "stopped":
            self.want(state.wanted)

    def stop(self) -> None:
        """Stop reading. Stored pages stay."""
        with self._changed:
            if self.state.busy:
                self.state.phase, self.state.progress = "stopped", None
            self._changed.notify_all()

    def _work(self) -> None:
        with at_work(self._settings().home):  # meanwhile, watched folders are not read
            while state := self._busy_state():
                try:
                    self._advance(state)
                except Cancelled:
                    continue  # the target changed, or a question came first
                except Exception as e:
                    state.phase, state.error, state.progress = "failed", error_text(e), None
        self._on_end()

    def _busy_state(self) -> ReadingState | None:
        with self._changed:
            if not self.state.busy:
                self._thread = None
                return None
            return self.state

    def _advance(self, state: ReadingState) -> None:
        """Do the next step: parse a file, find facts about the documents, wait for a model, or read all documents."""
        if new := next((d for d in state.documents if not d.document and not d.error), None):
            self._parse(new)
        elif not (ids := list(dict.fromkeys(d.document for d in state.documents if d.document))):
            state.phase = "failed"
        elif not state.questions and state.phase == "parsing":
            self._describe(state, ids)
        elif not self._has_model():
            self._enter(state, "no model")
            with self._changed:
                self._changed.wait(MODEL_CHECKS)
        else:
            self._make_ready(state, ids)

    def _enter(self, state: ReadingState, phase: str) -> None:
        """Set the phase. Raises Cancelled if reading was stopped meanwhile."""
        with self._changed:
            if state.phase == "stopped":
                raise Cancelled
            state.phase = phase

    def _parse(self, new: ReadDocument) -> None:
        is_wanted = lambda: self.state.phase == "parsing" and new.source in self.state.wanted.files  # noqa: E731
        for event in self._events(adding(new.source), self._library_worker, is_wanted):
            if isinstance(event, Added):
                new.document, new.error = event.id, event.why.replace(new.source, new.name)
                new.part, new.parts, new.characters = event.part, event.pages, event.characters

    def _describe(self, state: ReadingState, ids: Sequence[str]) -> None:
        """Find the names and lengths of the documents, and suggest questions that the documents answer."""
        for event in self._events(describing(ids, state.wanted.until), self._library_worker, lambda: _is(self, state)):
            if isinstance(event, ReadDocument):
                for document in (d for d in state.documents if d.document == event.document):
                    document.name, document.characters = document.name or event.name, event.characters
                    document.part, document.parts, document.guide = event.part, event.parts, event.guide
                    document.read = document.read or event.read
            elif isinstance(event, Candidates):
                state.candidates, state.questions = event, () if event.tried else event.questions
        self._enter(state, "reading")

    def _make_ready(self, state: ReadingState, ids: Sequence[str]) -> None:
        """Make the documents ready for questions. Then suggest questions, unless the chat has messages and no new file,
        because then none is shown. If the documents are not read whole, and are not too long, also read their passages.
        """
        self._enter(state, "reading")
        more = sum(document.characters for document in state.documents) <= MAX_PASSAGES_READ
        suggesting = not state.wanted.has_messages or bool(state.wanted.files)
        job = _making_ready(ids, state.wanted.until, more, state.candidates if suggesting else None)
        for event in self._events(job, self._answer_worker, lambda: _is(self, state), yielding=True):
            if isinstance(event, ReadyEvent):
                state.ready, state.progress = event.ready, None
                for document in state.documents:
                    document.read = bool(document.document)
            elif isinstance(event, SuggestedQuestions):
                state.questions = event.questions
        self._enter(state, "ready")
        state.progress = None

    def _has_model(self) -> bool:
        settings = self._settings()
        try:
            return check_known(settings.model, settings.models)[1]
        except ModelError:
            return False

    def _events(
        self, job: SessionJob, worker: EngineWorker, is_wanted: Callable[[], bool], yielding: bool = False
    ) -> Iterator[Any]:
        """Run a job and yield its events. Raises Cancelled once the job is no longer wanted, or when a question
        arrives.
        """
        self.state.progress = None
        stream = worker.submit(job, yielding=yielding)
        for event in stream:
            if not is_wanted():
                stream.cancel()
                raise Cancelled
            if isinstance(event, Progress):
                self.state.advance(event)
            yield event


def _is(reading: TabReading, state: ReadingState) -> bool:
    """True while ``state`` belongs to the current target, and reading has not ended or been stopped."""
    return reading.state is state and state.busy


def _making_ready(documents: Sequence[str], until: str, passages: bool, candidates: Candidates | None) -> SessionJob:
    def job(session: "Session") -> Generator[Any, Any, None]:
        ready = yield from session.workflows.readiness.make_ready(documents, until)
        yield ReadyEvent(ready)
        if candidates:
            with suppress(UserError):  # the documents are ready without suggestions too
                yield from session.workflows.readiness.suggest_found(documents, ready, candidates, until)
        for document in documents if passages and not ready.whole and not until else ():
            yield from session.workflows.reading_ahead.read(document)

    return job
