"""Desk: one worker that serves the whole window. Who wants work done takes a turn; turns are served one by one."""

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localctx.engine.events import Event
from localctx.errors import Cancelled, UserError
from localctx.settings import Settings

if TYPE_CHECKING:
    from localctx.session import Session

HEARD = 0.1  # seconds after which who listens is told that nothing new has come, and may leave
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
            turn.serve(self._seated())
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
                self._session = Session(self._settings, self._tell)
            elif self._session.settings != self._settings:
                self._session.change(self._settings)
            return self._session

    def _tell(self, event: Event) -> None:
        """To whom is being served."""
        with self._changed:
            turn = self._line[0]
        turn.hear(event)
