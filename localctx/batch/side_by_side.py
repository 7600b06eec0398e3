"""Together: the documents of a batch are computed side by side, as many as the memory there is holds."""

from collections import deque
from collections.abc import Callable, Generator, Iterable

from localctx.batch.jobs import DocumentJob
from localctx.batch.run_batch import Outcome
from localctx.engine.coroutine import CancelCheck, EngineCoroutine
from localctx.engine.events import Event
from localctx.engine.scheduler import ForwardFunction, Scheduler
from localctx.engine.sequence import Sequence

MOST = 64  # documents; beyond that one more costs as much as it would alone


def run_side_by_side(
    work: Callable[[DocumentJob], EngineCoroutine[Outcome]],
    jobs: Iterable[DocumentJob],
    compute: ForwardFunction,
    cancelled: CancelCheck,
    most: int = MOST,
) -> Generator[tuple[DocumentJob, Event | Outcome], None, None]:
    """Do ``jobs``: what is told of each on the way, and what became of it. At most so many at once, one more whenever
    the memory holds it. Who may fare better when others have ended is tried again then.

    Raises what ``work`` raises, Cancelled too; nothing is left open.
    """
    scheduler, left = Scheduler(compute, in_order=True), deque(jobs)
    seated, later = dict[Sequence[Outcome], DocumentJob](), list[DocumentJob]()
    try:
        while True:
            while left and len(seated) < most and not scheduler.would_preempt:
                job = left.popleft()
                seated[scheduler.add(work(job), cancelled)] = job
                yield from ((seated[seat], event) for seat, event in scheduler.collect_events())
            if not seated:
                return
            yield from ((seated[seat], event) for seat, event in scheduler.step())
            for seat in [seat for seat in seated if seat.ended]:
                job = seated.pop(seat)
                if seat.error:
                    raise seat.error
                if seat.result.again and seated:
                    later.append(job)
                    continue
                yield job, seat.result
                left.extendleft(reversed(later))
                later.clear()
    finally:
        for seat in seated:
            seat.close()
