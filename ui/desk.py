"""Desk: one worker that serves the whole window. Who wants work done takes a turn; turns are served one by one."""

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localctx.engine.events import Done, Event, InUse
from localctx.errors import Cancelled, UserError
from localctx.settings import Settings

if TYPE_CHECKING:
    from localctx.session import Session

HEARD = 0.1  # seconds after which who listens is told that nothing new has come, and may leave
REMEMBERED = 32  # chats whose last report is
_END = object()

Job = Callable[["Session"], Generator[Any, None, None]]


@dataclass(frozen=True)
class Waiting:
    """Nothing new yet; ``place`` in the line, 0 while being served."""

    place: int


class Turn:
    """One job, from being asked for to its end. Iterate it for its events."""

    def __init__(self, job: Job, desk: "Desk") -> None:
        self._job, self._desk = job, desk
        self._events = queue.SimpleQueue[Any]()
        self.cancelled = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        """Events as they come, and ``Waiting`` at least every HEARD seconds. Raises what the job raised.

        Who leaves early cancels the job.
        """
        try:
            while (event := self._next()) is not _END:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Stop the job, also one that still waits; it then ends as its session ends it, or raises Cancelled."""
        self.cancelled.set()
        self._desk.interrupt(self)

    def hear(self, event: Event) -> None:
        """An event beside the job's own, as of a model being fetched. Raises Cancelled where nobody wants it."""
        if self.cancelled.is_set():
            raise Cancelled
        self._events.put(event)

    def serve(self, session: "Session") -> None:
        """Do the job; called by the desk."""
        try:
            if self.cancelled.is_set():
                raise Cancelled
            for event in self._job(session):
                self._desk.note(event, session)
                self._events.put(event)
                if self.cancelled.is_set():
                    session.cancel()
            self._events.put(_END)
        except (UserError, Cancelled) as e:
            self._events.put(e)
        except Exception as e:  # a fault of ours must not end the desk: who asked is told
            logging.getLogger(__name__).exception("a job failed")
            self._events.put(e)

    def _next(self) -> Any:
        try:
            return self._events.get(timeout=HEARD)
        except queue.Empty:
            return Waiting(self._desk.place(self))


class Desk:
    """Serves turns with one Session, which its own thread alone uses."""

    def __init__(self, settings: Settings, name: str = "desk") -> None:
        self._settings = settings
        self._session: Session | None = None
        self._line = deque[Turn]()
        self._changed = threading.Condition()
        self._open = True
        self.in_use = InUse()  # what the session holds, as last looked at
        self._reports: dict[str, dict[str, Any]] = {}
        self._worker = threading.Thread(target=self._work, name=name, daemon=True)
        self._worker.start()

    def take_turn(self, job: Job) -> Turn:
        """Stand in line with ``job``."""
        turn = Turn(job, self)
        with self._changed:
            self._line.append(turn)
            self._changed.notify()
        return turn

    def place(self, turn: Turn) -> int:
        """How many are before it; 0 while it is served, and after."""
        with self._changed:
            return self._line.index(turn) if turn in self._line else 0

    @property
    def busy(self) -> bool:
        """Whether somebody is being served."""
        with self._changed:
            return bool(self._line)

    def interrupt(self, turn: Turn) -> None:
        """Tell the session to stop, if it is ``turn`` that it works for."""
        with self._changed:
            if self._session and self._line and self._line[0] is turn:
                self._session.cancel()

    def report(self, chat: str = "") -> dict[str, Any] | None:
        """What was reported of the last answer in a chat; where none is remembered, or none is named, of the last."""
        with self._changed:
            return self._reports.get(chat) or next(reversed(self._reports.values()), None)

    def note(self, event: Any, session: "Session") -> None:
        """Remember what pages show of the work beside its events; called where the session is used."""
        self.in_use = session.in_use
        if isinstance(event, Done) and (chat := event.report.get("chat")):
            with self._changed:
                self._reports.pop(chat, None)
                self._reports[chat] = event.report
                if len(self._reports) > REMEMBERED:
                    del self._reports[next(iter(self._reports))]

    def tell(self, event: Event) -> None:
        """Something beside a job's own events, to whom is being served. Raises Cancelled where nobody wants it."""
        with self._changed:
            turn = self._line[0]
        turn.hear(event)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nobody is served meanwhile; what was asked for before is stopped. Raises Cancelled when the desk closes."""
        seated, done = threading.Event(), threading.Event()

        def wait(session: "Session") -> Generator[Any, None, None]:
            seated.set()
            done.wait()
            yield from ()

        with self._changed:
            before = list(self._line)
        turn = self.take_turn(wait)
        for other in before:
            other.cancel()
        try:
            while not seated.wait(HEARD):
                if turn.cancelled.is_set():
                    raise Cancelled
            yield
        finally:
            done.set()

    def forget(self) -> None:
        """Forget what was reported of all chats."""
        with self._changed:
            self._reports.clear()

    def change(self, settings: Settings) -> None:
        """Serve the next turn under other settings."""
        with self._changed:
            self._settings = settings

    def close(self) -> None:
        """Stop what runs and what waits, and end."""
        with self._changed:
            self._open = False
            turns = list(self._line)
            self._changed.notify()
        for turn in turns:
            turn.cancel()
        self._worker.join()

    def _work(self) -> None:
        while turn := self._first():
            turn.serve(session := self._seated())
            self.in_use = session.in_use
            with self._changed:
                self._line.popleft()
        if self._session:
            self._session.close()

    def _first(self) -> Turn | None:
        """Who is served next; None when the desk closes."""
        with self._changed:
            self._changed.wait_for(lambda: self._line or not self._open)
            return self._line[0] if self._line else None

    def _seated(self) -> "Session":
        """The session, under the settings of now."""
        from localctx.session import Session  # torch: seconds, and the page comes first

        with self._changed:
            if self._session is None:
                self._session = Session(self._settings, self.tell)
            elif self._session.settings != self._settings:
                self._session.change(self._settings)
            return self._session
