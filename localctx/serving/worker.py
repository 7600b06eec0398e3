"""Runs jobs in one thread that owns the model and the scheduler. Jobs run side by side or wait in the thread's
queue.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from localctx.engine.events import Event, InUse
from localctx.error_log import log_error
from localctx.errors import Cancelled
from localctx.models.choice.default_model import choose_model
from localctx.serving.last_reports import LastReports
from localctx.settings import Settings
from localctx.store.process_locks import at_work

if TYPE_CHECKING:
    from localctx.engine.model_loader import ModelLoader
    from localctx.engine.planning.cache_plan import PoolSet
    from localctx.engine.scheduler import Scheduler
    from localctx.engine.sequence import Sequence
    from localctx.session import Session

POLL_INTERVAL = 0.1  # seconds after which an iterating thread gets a Queued event and may cancel
_END = object()

SessionJob = Callable[["Session"], Generator[Any, Any, None]]
"""A function that takes a session and returns a coroutine.

The coroutine yields events for the job's EventStream, and forward requests for the engine.
"""


@dataclass(frozen=True)
class Queued:
    """An event that an EventStream yields while the job has no new event. ``position`` is the job's place in the queue,
    from 1, or 0 when it runs or waits only for jobs that yield to it.
    """

    position: int


class EventStream:
    """The events of one job, from its submission to its end. Must be iterated once, from one thread.

    An ``exclusive`` job runs alone. A ``background`` job lets later jobs overtake it in the queue, and leaves one slot
    free for them. A ``yielding`` job runs alone and is cancelled when another job arrives.
    """

    def __init__(self, job: SessionJob, worker: "EngineWorker", exclusive: bool, background: bool, yielding: bool):
        self.job, self._worker, self._held = job, worker, ExitStack()
        self.exclusive, self.background, self.yielding = exclusive or yielding, background or yielding, yielding
        self._events = queue.SimpleQueue[Any]()
        self.cancelled = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        """Yields events as they arrive, and ``Queued`` whenever no event arrives for POLL_INTERVAL.

        Raises the error of the job. Leaving the loop early cancels the job.
        """
        try:
            while (event := self._next()) is not _END:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Stop the job, even while it waits in the queue. The job ends with a partial answer, or raises Cancelled."""
        self.cancelled.set()
        self._worker.cancel(self)

    def hold(self, held: AbstractContextManager[None]) -> None:
        """Enter the context manager ``held`` now, and leave it when the job has ended."""
        self._held.enter_context(held)

    def put(self, event: Any) -> None:
        """Append an event that the job's coroutine yielded."""
        self._events.put(event)

    def report(self, event: Event) -> None:
        """Append an event from outside the job's coroutine, such as download progress. Raises Cancelled."""
        if self.cancelled.is_set():
            raise Cancelled
        self._events.put(event)

    def finish(self, error: Exception | None) -> None:
        """End the stream.

        An ``error`` is logged and raised in the iterating thread; the worker continues.
        """
        if error:
            log_error(error)
        self._held.close()
        self._events.put(error or _END)

    def _next(self) -> Any:
        try:
            return self._events.get(timeout=POLL_INTERVAL)
        except queue.Empty:
            return Queued(self._worker.queue_position(self))


class _Slot:
    """A place in which one job runs at a time: a session, and the stream of the running job, if any."""

    def __init__(self, settings: Settings, loader: "ModelLoader") -> None:
        from localctx.session import Session

        self.stream: EventStream | None = None
        self.session = Session(settings, self._report, loader)

    def _report(self, event: Event) -> None:
        assert self.stream, "a session reports only while a job uses it"
        self.stream.report(event)


class EngineWorker:
    """Runs up to ``max_parallel`` jobs at a time in a thread of its own.

    Each job has a session of its own; all sessions share one model.
    """

    def __init__(self, settings: Settings, name: str = "engine", max_parallel: int = 1) -> None:
        self._settings, self._max_parallel = choose_model(settings), max_parallel
        self._queue = deque[EventStream]()
        self._running = dict["Sequence", _Slot]()
        self._slots = list[_Slot]()
        self._changed = threading.Condition()
        self._open = True
        self.in_use = InUse()  # memory of the sessions at the last event
        self._reports = LastReports()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, job: SessionJob, exclusive: bool = False, background: bool = False, yielding: bool = False
    ) -> EventStream:
        """Append ``job`` to the queue. Returns the stream of its events.

        An ``exclusive`` job runs alone. A ``background`` job lets later jobs overtake it in the queue, and leaves one
        slot free for them. A ``yielding`` job runs alone and is cancelled when another job arrives.
        """
        stream = EventStream(job, self, exclusive, background, yielding)
        if not yielding:
            stream.hold(at_work(self._settings.home))
        with self._changed:
            overtaken = 0 if stream.background else sum(other.background for other in self._queue)
            self._queue.insert(len(self._queue) - overtaken, stream)
            self._changed.notify()
        for other in (other for other in self._streams() if other.yielding and other is not stream):
            other.cancel()
        return stream

    def queue_position(self, stream: EventStream) -> int:
        """Returns the place of a stream's job in the queue, from 1; 0 if the job runs or has ended. Jobs that yield to
        it do not count.
        """
        with self._changed:
            if stream not in self._queue:
                return 0
            before = list(self._queue)[: self._queue.index(stream)]
            running = any(slot.stream and not slot.stream.yielding for slot in self._slots)
            return sum(not other.yielding for other in before) + running

    @property
    def load(self) -> tuple[int, int]:
        """The number of waiting jobs, and the number of running jobs."""
        with self._changed:
            return len(self._queue), len(self._running)

    @property
    def pools(self) -> "PoolSet | None":
        """The pools of the model's KV pages, or None until a job has needed the model. Any thread may read them."""
        return self._loader.pools if "_loader" in vars(self) else None

    @property
    def busy(self) -> bool:
        """True if a job runs or is queued."""
        with self._changed:
            return bool(self._queue or self._running)

    def cancel(self, stream: EventStream) -> None:
        """Cancel the session that runs the job of ``stream``, if the job runs."""
        with self._changed:
            for slot in self._slots:
                if slot.stream is stream:
                    slot.session.cancel()

    def last_report(self, chat: str = "") -> dict[str, Any] | None:
        """Returns the report of the last answer in ``chat``, or else of the last answer in any chat; None if there was
        no answer yet.
        """
        return self._reports.last(chat)

    @contextmanager
    def drained(self) -> Iterator[None]:
        """Cancel all jobs, and run no job while the ``with`` block runs. Raises Cancelled if the worker is closed."""
        started, done = threading.Event(), threading.Event()

        def wait(session: "Session") -> Generator[Any, None, None]:
            started.set()
            done.wait()
            yield from ()

        earlier = self._streams()
        stream = self.submit(wait, exclusive=True)
        for other in earlier:
            other.cancel()
        try:
            while not started.wait(POLL_INTERVAL):
                if stream.cancelled.is_set():
                    raise Cancelled
            yield
        finally:
            done.set()

    def clear_reports(self) -> None:
        """Forget the reports of all chats."""
        self._reports.clear()

    def change_settings(self, settings: Settings) -> None:
        """Use ``settings`` for the jobs that have not started yet."""
        with self._changed:
            self._settings = choose_model(settings)

    def close(self) -> None:
        """Cancel all jobs, running or queued, and end the thread."""
        with self._changed:
            self._open = False
            self._changed.notify()
        for stream in self._streams():
            stream.cancel()
        self._thread.join()

    def _streams(self) -> list[EventStream]:
        with self._changed:
            return [*self._queue, *(slot.stream for slot in self._slots if slot.stream)]

    def _run(self) -> None:
        """Run the thread: admit jobs, step the scheduler, deliver events, until the worker is closed."""
        while self._wait_for_work():
            self._admit()
            for sequence, event in self._scheduler.step() if self._running else ():
                self._deliver(self._running[sequence], event)
            self._finish_ended()
        for slot in self._slots:
            slot.session.close()

    def _deliver(self, slot: _Slot, event: Any) -> None:
        assert slot.stream, "a running slot has a stream"
        slot.stream.put(event)
        self._update_usage()
        self._reports.note(event)
        if slot.stream.cancelled.is_set():
            slot.session.cancel()

    def _wait_for_work(self) -> bool:
        """Wait until a job is queued or runs. Returns False once the worker is closed and has no job left."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._running or not self._open)
            return bool(self._queue or self._running)

    def _admit(self) -> None:
        """Start queued jobs, in order, as long as the next job may start."""
        while self._can_admit():
            slot = self._free_slot()
            with self._changed:  # both at once: cancel() must find the stream in the queue or in a slot
                stream = slot.stream = self._queue.popleft()
            sequence = self._scheduler.add(_unless_cancelled(stream, slot.session), stream.cancelled.is_set)
            with self._changed:
                self._running[sequence] = slot

    def _can_admit(self) -> bool:
        with self._changed:
            first = self._queue[0] if self._queue else None
        return first is not None and (not self._running or self._can_run_beside(first))

    def _can_run_beside(self, stream: EventStream) -> bool:
        """Returns True if a job may run beside the running jobs: it need not run alone, a slot is free, and the model
        is the same.
        """
        from localctx.engine.model_loader import same_model

        others, reserved = [slot.session for slot in self._running.values()], int(stream.background)
        full = len(others) + reserved >= self._max_parallel
        if stream.exclusive or full or not any(other.in_use.weights for other in others):
            return False
        return all(same_model(o.settings, self._settings) for o in others)

    def _free_slot(self) -> _Slot:
        """Returns a slot without a job, or a new one."""
        free = [slot for slot in self._slots if not slot.stream]
        for slot in free:  # all of them: a session with older settings could hold another model
            if slot.session.settings != self._settings:
                slot.session.change(self._settings)
        if not free:
            free.append(_Slot(self._settings, self._loader))
            with self._changed:
                self._slots += free
        return free[0]

    def _finish_ended(self) -> None:
        """End the streams of jobs that have ended, and free their slots."""
        for sequence in [sequence for sequence in self._running if sequence.ended]:
            with self._changed:
                slot = self._running.pop(sequence)
                stream, slot.stream = slot.stream, None
            assert stream, "a running slot has a stream"
            self._update_usage()
            stream.finish(sequence.error)

    def _update_usage(self) -> None:
        uses = (slot.session.in_use for slot in self._slots)  # equal for all sessions that share the model
        self.in_use = next((use for use in uses if use.weights), InUse())

    @cached_property
    def _loader(self) -> "ModelLoader":
        from localctx.engine.model_loader import ModelLoader  # imports torch, which takes seconds

        return ModelLoader()

    @cached_property
    def _scheduler(self) -> "Scheduler":
        from localctx.engine.scheduler import Scheduler

        return Scheduler(self._loader.forward_each)


def _unless_cancelled(stream: EventStream, session: "Session") -> Generator[Any, Any, None]:
    """Run a stream's job. Raises Cancelled if the stream was cancelled before the job started."""
    if stream.cancelled.is_set():
        raise Cancelled
    yield from stream.job(session)
