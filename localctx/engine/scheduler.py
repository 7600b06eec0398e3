"""Scheduling: steps of several sequences are computed together, so that the weights are read once for all of them.

Sequences join and leave between any two passes (Orca, OSDI 2022). A pass takes the next token of every sequence that
answers and, of those that read, a chunk in turn (Sarathi-Serve, arXiv:2403.02310): nobody's answer waits longer for
another's prompt. Where memory is short, those who came last pause (vLLM, arXiv:2309.06180); their pages, which nobody
needs then, are what is pushed to lower tiers, and come back.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from torch import Tensor

from localctx.engine.coroutine import CancelCheck, EngineCoroutine, Result, never_cancelled
from localctx.engine.events import Event
from localctx.engine.sequence import Sequence
from localctx.errors import Cancelled
from localctx.kv.decode_batch import MAX_DECODE_TOKENS
from localctx.kv.pool import Pool
from localctx.models.base import ForwardRequest

ENOUGH = 8  # sequences that answer: with these, a pass is worth its while
MOST_EVENTS = 64  # of one sequence between two passes: work that never needs the model holds nobody up

ForwardFunction = Callable[[list[ForwardRequest], CancelCheck], list[Tensor]]


class Scheduler:
    """Serves the sequences taken in it. A pass reads at most ``rows`` tokens, or one chunk that has more.

    ``in_order``: who came first reads first, and no long chunk is read while ENOUGH others answer, so that those who
    read a lot end one after another, and not all at the end.
    """

    def __init__(self, compute: ForwardFunction, rows: int = 512, in_order: bool = False) -> None:
        self._compute, self._rows, self._in_order = compute, rows, in_order
        self._passes = 0
        self.sequences = list[Sequence]()

    def add(self, steps: EngineCoroutine[Result], cancelled: CancelCheck = never_cancelled) -> Sequence[Result]:
        """Take a sequence; its steps begin at once."""
        sequence = Sequence(steps, cancelled)
        self.sequences.append(sequence)
        return sequence

    def remove(self, sequence: Sequence) -> None:
        """Give a sequence up, wherever its steps are."""
        self.sequences.remove(sequence)
        sequence.close()

    def run(self) -> Iterator[tuple[Sequence, Event]]:
        """What comes of all sequences, until every one has ended; others may join and leave meanwhile."""
        while self.sequences:
            yield from self.step()

    def step(self) -> Iterator[tuple[Sequence, Event]]:
        """One pass of the model: what is told before it. Seats that have ended are free afterwards."""
        yield from self.collect_events()
        if chosen := self._schedule():
            self._passes += 1
            self._run_batch(chosen)

    def collect_events(self) -> Iterator[tuple[Sequence, Event]]:
        """What is told up to where the model is needed, or some of it."""
        for sequence in list(self.sequences):
            for event in islice(sequence.events(), MOST_EVENTS):
                yield sequence, event
        self.sequences = [sequence for sequence in self.sequences if not sequence.ended]

    @property
    def would_preempt(self) -> bool:
        """Whether somebody who has a sequence would have to pause now: nobody else should join."""
        wanting = [sequence for sequence in self.sequences if sequence.feed]
        return len(self._resident()) < len(wanting)

    def _resident(self) -> list[tuple[Sequence, ForwardRequest]]:
        """Who wants the model, in the order they came, as far as the sequences of all fit where the model computes.

        The first of a pool does in any case: it spills.
        """
        wanting = [(sequence, sequence.feed) for sequence in self.sequences if sequence.feed]
        taken, fitting = Counter[Pool](), list[tuple[Sequence, ForwardRequest]]()
        for sequence, feed in wanting:
            pool, need = feed.cache.pool, feed.cache.bytes_with(len(feed.tokens))
            limit = pool.device_tier.limit
            if limit is None or not taken[pool] or taken[pool] + need <= limit:
                taken[pool] += need
                fitting.append((sequence, feed))
        return fitting

    def _schedule(self) -> list[tuple[Sequence, ForwardRequest]]:
        """Who is computed next: all who answer, and of those who read who waits longest, while there is room."""
        chosen, room, rope = list[tuple[Sequence, ForwardRequest]](), self._rows, None
        fitting = self._resident()
        busy = self._in_order and sum(len(feed.tokens) <= MAX_DECODE_TOKENS for _, feed in fitting) >= ENOUGH
        for sequence, feed in fitting if self._in_order else sorted(fitting, key=lambda one: one[0].served):
            size, turning = len(feed.tokens), feed.cache.pool.rope
            if busy and size >= self._rows:
                continue
            rope = rope if chosen else turning
            if turning is not rope:  # a pass turns keys in one way
                continue
            if size > MAX_DECODE_TOKENS and (size <= room or room == self._rows):
                room -= size
            elif size > MAX_DECODE_TOKENS:
                continue
            chosen.append((sequence, feed))
        return chosen

    def _run_batch(self, chosen: list[tuple[Sequence, ForwardRequest]]) -> None:
        """One pass. Where it fails, who is cancelled hears of it and the others are computed one by one."""
        try:
            found = self._compute(
                [feed for _, feed in chosen], lambda: any(sequence.cancelled() for sequence, _ in chosen)
            )
        except Exception as e:
            self._run_separately(chosen, e)
            return
        for (sequence, _), logits in zip(chosen, found, strict=True):
            sequence.served = self._passes
            sequence.give(logits)

    def _run_separately(self, chosen: list[tuple[Sequence, ForwardRequest]], e: Exception) -> None:
        if len(chosen) == 1:
            chosen[0][0].fail(e)
        elif isinstance(e, Cancelled):
            for sequence, _ in chosen:
                if sequence.cancelled():
                    sequence.fail(e)  # the others are as before, and come again
        else:
            for one in chosen:
                self._run_batch([one])
