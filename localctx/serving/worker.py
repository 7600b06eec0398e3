"""Desk: one worker that serves a whole window, or a server. Who wants work done takes a turn; as many as there is room
for are served together, the others wait in line.
"""

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from localctx.engine.events import Done, Event, InUse
from localctx.engine.request_report import AnswerReport
from localctx.errors import Cancelled, UserError
from localctx.settings import Settings

if TYPE_CHECKING:
    from localctx.engine.model_loader import ModelLoader
    from localctx.engine.scheduler import Scheduler
    from localctx.engine.sequence import Sequence
    from localctx.session import Session

HEARD = 0.1  # seconds after which who listens is told that nothing new has come, and may leave
REMEMBERED = 32  # chats whose last report is
_END = object()

SessionJob = Callable[["Session"], Generator[Any, Any, None]]
"""Work with a session, which yields what it has to tell, and the coroutines of ``session.workflows``."""


@dataclass(frozen=True)
class Queued:
    """Nothing new yet; ``place`` in the line, 0 while being served."""

    place: int


class EventStream:
    """One job, from being asked for to its end. Iterate it for its events.

    ``alone``: it is served with no other. ``patient``: whoever comes goes before it, and finds room beside it.
    """

    def __init__(self, job: SessionJob, desk: "EngineWorker", alone: bool, patient: bool) -> None:
        self.job, self.alone, self.patient, self._desk = job, alone, patient, desk
        self._events = queue.SimpleQueue[Any]()
        self.cancelled = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        """Events as they come, and ``Queued`` at least every HEARD seconds. Raises what the job raised.

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

    def put(self, event: Any) -> None:
        """An event of the job."""
        self._events.put(event)

    def end(self, error: Exception | None) -> None:
        """Nothing more comes. A fault of ours must not end the desk: who asked is told."""
        if error and not isinstance(error, UserError | Cancelled):
            logging.getLogger(__name__).error("a job failed", exc_info=error)
        self._events.put(error or _END)

    def _next(self) -> Any:
        try:
            return self._events.get(timeout=HEARD)
        except queue.Empty:
            return Queued(self._desk.place(self))


class _Slot:
    """A session and whose turn it is to use it."""

    def __init__(self, settings: Settings, loader: "ModelLoader") -> None:
        from localctx.session import Session

        self.turn: EventStream | None = None
        self.session = Session(settings, self._tell, loader)

    def _tell(self, event: Event) -> None:
        assert self.turn, "a session works for nobody"
        self.turn.hear(event)


class EngineWorker:
    """Serves up to ``most`` turns together, in a thread of its own. They have a session each, and share the model."""

    def __init__(self, settings: Settings, name: str = "desk", most: int = 1) -> None:
        self._settings, self._most = settings, most
        self._line = deque[EventStream]()
        self._served = dict["Sequence", _Slot]()
        self._chairs = list[_Slot]()
        self._changed = threading.Condition()
        self._open = True
        self.in_use = InUse()  # what the sessions hold, as last looked at
        self._reports: dict[str, dict[str, Any]] = {}
        self._worker = threading.Thread(target=self._work, name=name, daemon=True)
        self._worker.start()

    def take_turn(self, job: SessionJob, alone: bool = False, patient: bool = False) -> EventStream:
        """Stand in line with ``job``."""
        turn = EventStream(job, self, alone, patient)
        with self._changed:
            passed = 0 if patient else sum(other.patient for other in self._line)
            self._line.insert(len(self._line) - passed, turn)
            self._changed.notify()
        return turn

    def place(self, turn: EventStream) -> int:
        """Which in the line it is, from 1; 0 while it is served, and after."""
        with self._changed:
            return self._line.index(turn) + 1 if turn in self._line else 0

    @property
    def busy(self) -> bool:
        """Whether somebody is being served, or waits."""
        with self._changed:
            return bool(self._line or self._served)

    def interrupt(self, turn: EventStream) -> None:
        """Tell the session that works for ``turn`` to stop, if one does."""
        with self._changed:
            for chair in self._chairs:
                if chair.turn is turn:
                    chair.session.cancel()

    def report(self, chat: str = "") -> dict[str, Any] | None:
        """What was reported of the last answer in a chat; where none is remembered, or none is named, of the last."""
        with self._changed:
            return self._reports.get(chat) or next(reversed(self._reports.values()), None)

    def _note(self, event: Any) -> None:
        """Remember what pages show of the work beside its events."""
        self._look()
        if isinstance(event, Done) and isinstance(event.report, AnswerReport) and (chat := event.report.chat):
            with self._changed:
                self._reports.pop(chat, None)
                self._reports[chat] = event.report.to_json()
                if len(self._reports) > REMEMBERED:
                    del self._reports[next(iter(self._reports))]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nobody is served meanwhile; what was asked for before is stopped. Raises Cancelled when the desk closes."""
        seated, done = threading.Event(), threading.Event()

        def wait(session: "Session") -> Generator[Any, None, None]:
            seated.set()
            done.wait()
            yield from ()

        before = self._turns()
        turn = self.take_turn(wait, alone=True)
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
            self._changed.notify()
        for turn in self._turns():
            turn.cancel()
        self._worker.join()

    def _turns(self) -> list[EventStream]:
        with self._changed:
            return [*self._line, *(chair.turn for chair in self._chairs if chair.turn)]

    def _work(self) -> None:
        while self._wanted():
            self._seat()
            for seat, event in self._scheduler.step() if self._served else ():
                chair = self._served[seat]
                assert chair.turn, "who is served has a turn"
                chair.turn.put(event)
                self._note(event)
                if chair.turn.cancelled.is_set():
                    chair.session.cancel()
            self._dismiss()
        for chair in self._chairs:
            chair.session.close()

    def _wanted(self) -> bool:
        """Wait until somebody wants something; False when the desk closes, and nobody does."""
        with self._changed:
            self._changed.wait_for(lambda: self._line or self._served or not self._open)
            return bool(self._line or self._served)

    def _seat(self) -> None:
        """Seat who is first in line, while there is room."""
        while self._may_seat():
            chair = self._free_chair()
            with self._changed:  # somewhere it can be found, always: who cancels it looks for it
                turn = chair.turn = self._line.popleft()
            seat = self._scheduler.add(_unless_cancelled(turn, chair.session), turn.cancelled.is_set)
            with self._changed:
                self._served[seat] = chair

    def _may_seat(self) -> bool:
        with self._changed:
            first = self._line[0] if self._line else None
        return first is not None and (not self._served or self._fits_beside(first))

    def _fits_beside(self, turn: EventStream) -> bool:
        """Whether a turn may be served with those that are."""
        from localctx.engine.model_loader import same_model

        others, left_free = [chair.session for chair in self._served.values()], int(turn.patient)
        if turn.alone or len(others) + left_free >= self._most or not any(other.in_use.weights for other in others):
            return False
        return all(same_model(o.settings, self._settings) for o in others)

    def _free_chair(self) -> _Slot:
        """A session that nobody uses, under the settings of now, as all of those are: one under others may hold
        another model.
        """
        free = [chair for chair in self._chairs if not chair.turn]
        for chair in free:
            if chair.session.settings != self._settings:
                chair.session.change(self._settings)
        if not free:
            free.append(_Slot(self._settings, self._loader))
            with self._changed:
                self._chairs += free
        return free[0]

    def _dismiss(self) -> None:
        """Tell those who have ended, and give their chairs back."""
        for seat in [seat for seat in self._served if seat.ended]:
            with self._changed:
                chair = self._served.pop(seat)
                turn, chair.turn = chair.turn, None
            assert turn, "who is served has a turn"
            self._look()
            turn.end(seat.error)

    def _look(self) -> None:
        uses = (chair.session.in_use for chair in self._chairs)  # which is the same for all who share the model
        self.in_use = next((use for use in uses if use.weights), InUse())

    @cached_property
    def _loader(self) -> "ModelLoader":
        from localctx.engine.model_loader import ModelLoader  # torch: seconds, and the page comes first

        return ModelLoader()

    @cached_property
    def _scheduler(self) -> "Scheduler":
        from localctx.engine.scheduler import Scheduler

        return Scheduler(self._loader.forward_each)


def _unless_cancelled(turn: EventStream, session: "Session") -> Generator[Any, Any, None]:
    """The job of a turn; nothing of it where nobody wants it any more."""
    if turn.cancelled.is_set():
        raise Cancelled
    yield from turn.job(session)
