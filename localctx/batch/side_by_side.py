"""Runs the documents of a batch concurrently on the local model, as many as fit in memory."""

from collections import deque
from collections.abc import Callable, Iterable

from localctx.batch.jobs import DocumentJob
from localctx.batch.run_batch import JobEvents, Outcome
from localctx.engine.coroutine import CancelCheck, EngineCoroutine
from localctx.engine.scheduler import ForwardFunction, Scheduler
from localctx.engine.sequence import Sequence

MAX_PARALLEL = 64  # documents; above this, one more costs as much as it would alone


def run_side_by_side(
    start: Callable[[DocumentJob], EngineCoroutine[Outcome]],
    jobs: Iterable[DocumentJob],
    compute: ForwardFunction,
    cancelled: CancelCheck,
    max_parallel: int = MAX_PARALLEL,
) -> JobEvents:
    """Run ``jobs`` concurrently. ``start`` makes the coroutine of a job, and ``compute`` computes a forward pass.
    Yields the events of each job, and its outcome at the end.

    Up to ``max_parallel`` jobs run at a time. A new one starts only while none is preempted for lack of memory. A job
    whose outcome says ``retry`` runs again after another has ended. If a job raises an error, including Cancelled, all
    jobs are closed and the error is raised here.
    """
    scheduler, waiting = Scheduler(compute, in_order=True), deque(jobs)
    running, retries = dict[Sequence[Outcome], DocumentJob](), list[DocumentJob]()
    try:
        while True:
            while waiting and len(running) < max_parallel and not scheduler.is_preempting:
                job = waiting.popleft()
                running[scheduler.add(start(job), cancelled)] = job
                yield from ((running[sequence], event) for sequence, event in scheduler.collect_events())
            if not running:
                return
            yield from ((running[sequence], event) for sequence, event in scheduler.step())
            for sequence in [sequence for sequence in running if sequence.ended]:
                job = running.pop(sequence)
                if sequence.error:
                    raise sequence.error
                if sequence.result.retry and running:
                    retries.append(job)
                    continue
                yield job, sequence.result
                waiting.extendleft(reversed(retries))
                retries.clear()
    finally:
        for sequence in running:
            sequence.close()
