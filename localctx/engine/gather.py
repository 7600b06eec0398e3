"""Gather: runs several coroutines as one, so that a forward pass reads the weights once for all coroutines."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from localctx.engine.coroutine import EngineCoroutine, Result
from localctx.engine.scheduler import Batcher
from localctx.engine.sequence import Sequence
from localctx.errors import OutOfKVMemory

Item = TypeVar("Item")


def gather(
    start: Callable[[Item], EngineCoroutine[Result]], items: Iterable[Item], limit: int
) -> EngineCoroutine[list[Result]]:
    """Run several coroutines as one: ``start`` makes a coroutine from each of ``items``, and at most ``limit`` run at a
    time. Yields the events of all coroutines, and returns their results in the order of ``items``.

    While memory is short for the running coroutines, no new one is started. A coroutine that raises OutOfKVMemory while
    others run starts again after one of the others has ended. Any other exception of a coroutine, such as Cancelled, is
    raised here, and all coroutines are closed.
    """
    batcher, waiting = Batcher(in_order=True), deque(enumerate(items))
    running, results = dict[Sequence[Result], tuple[int, Item]](), dict[int, Result]()
    try:
        while waiting or running:
            while waiting and len(running) < limit and not (running and batcher.is_preempting):
                sequence = batcher.add(start(waiting[0][1]))
                running[sequence] = waiting.popleft()
                yield from (event for _, event in batcher.collect_events())
            yield from (event for _, event in batcher.collect_events())
            yield from batcher.forward()
            for sequence in [sequence for sequence in running if sequence.ended]:
                index, item = running.pop(sequence)
                if sequence.error is None:
                    results[index] = sequence.result
                elif isinstance(sequence.error, OutOfKVMemory) and running:
                    waiting.appendleft((index, item))
                    limit = len(running)
                else:
                    raise sequence.error
    finally:
        for sequence in running:
            sequence.close()
    return [results[index] for index in sorted(results)]
