"""Runs answers in the server. An answer belongs to a chat, whether or not a page shows it."""

import threading
import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from localctx.errors import Cancelled, ChatFull, UsageError
from localctx.serving.worker import EngineWorker, EventStream, SessionJob
from localctx.ui import render
from localctx.ui.answers.conversation import StreamingAnswer
from localctx.ui.job_events import error_text


@dataclass(frozen=True)
class TypedQuestion:
    """The text typed in the question box of a browser ``tab``, and the files dropped there."""

    text: str
    files: Sequence[str]
    tab: str


@dataclass
class RunningAnswer:
    """An answer that is being generated in a ``chat``. ``shown`` is the state that pages show.

    ``typed`` is the question if it was typed in a question box, else None. ``known`` are the ids of the chat's earlier
    messages. ``version`` is incremented on every change. ``failed`` is False only once the answer has ended without a
    stop or an error.
    """

    chat: str
    shown: StreamingAnswer
    typed: TypedQuestion | None = None
    known: Set[int] = frozenset()
    version: int = 0
    running: bool = True
    failed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stream: EventStream | None = None
    _stopped: bool = False

    def stop(self) -> None:
        """Stop the answer. If no job is running at the moment, the next one does not start. The text generated so far
        is stored.
        """
        with self._lock:
            self._stopped, stream = True, self._stream
        if stream:
            stream.cancel()

    def run(self, jobs: Sequence[tuple[SessionJob, EngineWorker]]) -> None:
        """Run jobs one by one until all have ended or one fails."""
        shown, self.failed = self.shown, True
        try:
            for job, worker in jobs:
                for event in self._submit(job, worker):
                    shown.handle(event)
                    self.version += 1
            self.failed = False
        except Cancelled:
            shown.status = render.note("Stopped")
        except ChatFull as e:
            shown.full, shown.status = True, render.note(f"{e.problem}. How should the chat continue?", "error")
        except Exception as e:
            shown.status = render.note(error_text(e), "error")
        self.running = False
        self.version += 1

    def _submit(self, job: SessionJob, worker: EngineWorker) -> EventStream:
        with self._lock:
            if self._stopped:
                raise Cancelled
            self._stream = worker.submit(job)
            return self._stream


class RunningAnswers:
    """The running answers, at most one per chat, and answers that ended before a page showed their result."""

    def __init__(self) -> None:
        self._answers: dict[str, RunningAnswer] = {}  # by chat
        self._threads = list[threading.Thread]()
        self._begun = Counter[str]()
        self._lock = threading.RLock()

    def begin(self, answer: RunningAnswer, jobs: Sequence[tuple[SessionJob, EngineWorker]]) -> None:
        """Generate an answer by running ``jobs`` in a thread. Raises UsageError if the chat has a running answer."""
        with self._lock:
            if self.is_running(answer.chat):
                raise UsageError("this chat is being answered", "stop that, or wait for its end")
            self._answers[answer.chat] = answer
            self._begun[answer.chat] += 1
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._threads.append(threading.Thread(target=answer.run, args=[jobs], daemon=True, name="answer"))
            self._threads[-1].start()

    def of(self, chat: str) -> RunningAnswer | None:
        """Returns the running answer of a chat, or an answer that ended but was not shown yet. Returns None if there is
        neither.
        """
        with self._lock:
            return self._answers.get(chat)

    def is_running(self, chat: str) -> bool:
        """True if a chat has a running answer."""
        answer = self.of(chat)
        return answer is not None and answer.running

    def files_of(self, chat: str) -> list[str]:
        """Returns the names of the files that are read for a chat's running answer."""
        answer = self.of(chat)
        return [Path(file).name for file in answer.typed.files] if answer and answer.running and answer.typed else []

    def begun(self, chat: str) -> int:
        """Returns the number of answers begun in a chat since the window started."""
        with self._lock:
            return self._begun[chat]

    @property
    def chats(self) -> frozenset[str]:
        """The chats with a running answer."""
        with self._lock:
            return frozenset(chat for chat in self._answers if self.is_running(chat))

    def note_shown(self, answer: RunningAnswer) -> None:
        """Forget an answer that has ended, because a page has shown its result."""
        with self._lock:
            if not answer.running and self._answers.get(answer.chat) is answer:
                del self._answers[answer.chat]

    def stop(self, chat: str) -> None:
        """Stop a chat's running answer, if it has one."""
        if answer := self.of(chat):
            answer.stop()

    def stop_and_wait(self, chat: str, seconds: float = 3.0) -> None:
        """Stop a chat's running answer, if it has one, and wait at most ``seconds`` until it has ended."""
        self.stop(chat)
        end = time.monotonic() + seconds
        while self.is_running(chat) and time.monotonic() < end:
            time.sleep(0.01)

    def close(self) -> None:
        """Stop all answers and wait for their threads to end."""
        for chat in self.chats:
            self.stop(chat)
        for thread in self._threads:
            thread.join()
