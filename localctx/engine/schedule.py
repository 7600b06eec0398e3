"""Scheduling: steps of several sequences are computed together, so that the weights are read once for all of them.

Sequences join and leave between any two passes (Orca, OSDI 2022). A pass takes the next token of every sequence that
answers and, of those that read, a chunk in turn (Sarathi-Serve, arXiv:2403.02310): nobody's answer waits longer for
another's prompt. Where memory is short, those who came last pause (vLLM, arXiv:2309.06180); their pages, which nobody
needs then, are what is pushed to lower tiers, and come back.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Generic

from torch import Tensor

from localctx.engine.events import Event
from localctx.engine.steps import Check, Result, Running, Steps, never
from localctx.errors import Cancelled
from localctx.kv.pool import Pool
from localctx.kv.rows import FEW
from localctx.models.base import Feed

ENOUGH = 8  # sequences that answer: with these, a pass is worth its while
MOST_EVENTS = 64  # of one sequence between two passes: work that never needs the model holds nobody up

ComputeEach = Callable[[Sequence[Feed], Check], list[Tensor]]


class Seat(Generic[Result]):
    """One sequence's place: its steps on their way, until it has ``ended``, with a ``result`` or an ``error``."""

    result: Result

    def __init__(self, steps: Steps[Result], cancelled: Check) -> None:
        self.cancelled = cancelled
        self.error: Exception | None = None
        self.served = 0  # the number of the pass it was last part of
        self._running = Running(steps)
        self._try(self._running.go)

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self._running.ended or self.error is not None

    def events(self) -> Iterator[Event]:
        """Go on to where the model is needed."""
        while not self.ended and not isinstance(self._running.got, Feed):
            yield self._running.got
            self._try(self._running.go)

    @property
    def feed(self) -> Feed | None:
        """What the model is needed for; None while events are to be heard first, and when it has ended."""
        return None if self.ended or not isinstance(self._running.got, Feed) else self._running.got

    def give(self, logits: Tensor) -> None:
        """What was needed."""
        self._try(lambda: self._running.go(logits))

    def fail(self, e: Exception) -> None:
        """Why it cannot be had; the steps may know a way on."""
        self._try(lambda: self._running.fail(e))

    def close(self) -> None:
        """Nothing more is wanted of it."""
        self._running.close()

    def _try(self, on: Callable[[], None]) -> None:
        try:
            on()
        except Exception as e:
            self.error = e
        if self._running.ended:
            self.result = self._running.result


class Scheduler:
    """Serves the seats taken in it. A pass reads at most ``rows`` tokens, or one chunk that has more.

    ``in_order``: who came first reads first, and no long chunk is read while ENOUGH others answer, so that those who
    read a lot end one after another, and not all at the end.
    """

    def __init__(self, compute: ComputeEach, rows: int = 512, in_order: bool = False) -> None:
        self._compute, self._rows, self._in_order = compute, rows, in_order
        self._passes = 0
        self.seats = list[Seat]()

    def join(self, steps: Steps[Result], cancelled: Check = never) -> Seat[Result]:
        """Take a seat; its steps begin at once."""
        seat = Seat(steps, cancelled)
        self.seats.append(seat)
        return seat

    def leave(self, seat: Seat) -> None:
        """Give a seat up, wherever its steps are."""
        self.seats.remove(seat)
        seat.close()

    def run(self) -> Iterator[tuple[Seat, Event]]:
        """What comes of all seats, until every one has ended; others may join and leave meanwhile."""
        while self.seats:
            yield from self.turn()

    def turn(self) -> Iterator[tuple[Seat, Event]]:
        """One pass of the model: what is told before it. Seats that have ended are free afterwards."""
        yield from self.hear()
        if chosen := self._choose():
            self._passes += 1
            self._serve(chosen)

    def hear(self) -> Iterator[tuple[Seat, Event]]:
        """What is told up to where the model is needed, or some of it."""
        for seat in list(self.seats):
            for event in islice(seat.events(), MOST_EVENTS):
                yield seat, event
        self.seats = [seat for seat in self.seats if not seat.ended]

    @property
    def crowded(self) -> bool:
        """Whether somebody who has a seat would have to pause now: nobody else should join."""
        wanting = [seat for seat in self.seats if seat.feed]
        return len(self._fitting()) < len(wanting)

    def _fitting(self) -> list[tuple[Seat, Feed]]:
        """Who wants the model, in the order they came, as far as the sequences of all fit where the model computes.

        The first of a pool does in any case: it spills.
        """
        wanting = [(seat, seat.feed) for seat in self.seats if seat.feed]
        taken, fitting = Counter[Pool](), list[tuple[Seat, Feed]]()
        for seat, feed in wanting:
            pool, need = feed.cache.pool, feed.cache.bytes_with(len(feed.tokens))
            limit = pool.memory.limit
            if limit is None or not taken[pool] or taken[pool] + need <= limit:
                taken[pool] += need
                fitting.append((seat, feed))
        return fitting

    def _choose(self) -> list[tuple[Seat, Feed]]:
        """Who is computed next: all who answer, and of those who read who waits longest, while there is room."""
        chosen, room, rope = list[tuple[Seat, Feed]](), self._rows, None
        fitting = self._fitting()
        busy = self._in_order and sum(len(feed.tokens) <= FEW for _, feed in fitting) >= ENOUGH
        for seat, feed in fitting if self._in_order else sorted(fitting, key=lambda one: one[0].served):
            size, turning = len(feed.tokens), feed.cache.pool.rope
            if busy and size >= self._rows:
                continue
            rope = rope if chosen else turning
            if turning is not rope:  # a pass turns keys in one way
                continue
            if size > FEW and (size <= room or room == self._rows):
                room -= size
            elif size > FEW:
                continue
            chosen.append((seat, feed))
        return chosen

    def _serve(self, chosen: Sequence[tuple[Seat, Feed]]) -> None:
        """One pass. Where it fails, who is cancelled hears of it and the others are computed one by one."""
        try:
            found = self._compute([feed for _, feed in chosen], lambda: any(seat.cancelled() for seat, _ in chosen))
        except Exception as e:
            self._apart(chosen, e)
            return
        for (seat, _), logits in zip(chosen, found, strict=True):
            seat.served = self._passes
            seat.give(logits)

    def _apart(self, chosen: Sequence[tuple[Seat, Feed]], e: Exception) -> None:
        if len(chosen) == 1:
            chosen[0][0].fail(e)
        elif isinstance(e, Cancelled):
            for seat, _ in chosen:
                if seat.cancelled():
                    seat.fail(e)  # the others are as before, and come again
        else:
            for one in chosen:
                self._serve([one])
