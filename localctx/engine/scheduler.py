"""The scheduler: forward passes that several sequences share, so that the weights are read once for all of them.

Sequences are added and removed between any two passes (continuous batching: Orca, OSDI 2022). A pass computes the next
token of every sequence that decodes and, of those that prefill, chunks in turn (Sarathi-Serve, arXiv:2403.02310), so
that no answer waits for another sequence's whole prompt. Where memory is short, the sequences added last are preempted
(vLLM, arXiv:2309.06180): they are left out of passes, and their pages are the first to move to lower tiers.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from torch import Tensor

from localctx.engine.coroutine import (
    AwaitedForward,
    CancelCheck,
    EngineCoroutine,
    Result,
    logits_for,
    never_cancelled,
    requests_of,
)
from localctx.engine.events import Event
from localctx.engine.sequence import Sequence
from localctx.errors import Cancelled
from localctx.kv.backend import MAX_DECODE_TOKENS
from localctx.kv.pool import Pool
from localctx.models.base import ForwardRequest

FULL_DECODE_BATCH = 8  # decoding sequences that make a pass worth its cost without a long prefill chunk
MAX_EVENTS = 64  # of one sequence between two passes: a coroutine that needs no model holds up no other

ForwardFunction = Callable[[list[ForwardRequest], CancelCheck], list[Tensor]]
Scheduled = tuple[Sequence, AwaitedForward]


class Scheduler:
    """Runs sequences together. A pass prefills at most ``max_prefill_tokens``, or one chunk that has more.

    ``in_order``: sequences prefill in the order they were added, and no long chunk is prefilled while
    FULL_DECODE_BATCH others decode, so that long work ends piece by piece and not all at once.
    """

    def __init__(self, compute: ForwardFunction, max_prefill_tokens: int = 512, in_order: bool = False) -> None:
        self._compute, self._max_prefill_tokens, self._in_order = compute, max_prefill_tokens, in_order
        self._passes = 0
        self.sequences = list[Sequence]()

    def add(self, coroutine: EngineCoroutine[Result], cancelled: CancelCheck = never_cancelled) -> Sequence[Result]:
        """Add a sequence; its coroutine starts at once."""
        sequence = Sequence(coroutine, cancelled)
        self.sequences.append(sequence)
        return sequence

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence and end its coroutine where it is."""
        self.sequences.remove(sequence)
        sequence.close()

    def run(self) -> Iterator[tuple[Sequence, Event]]:
        """Step until every sequence has ended; yields events. Sequences may be added and removed meanwhile."""
        while self.sequences:
            yield from self.step()

    def step(self) -> Iterator[tuple[Sequence, Event]]:
        """Yield the events before the next forward pass, then compute that pass. Ended sequences are removed."""
        yield from self.collect_events()
        if scheduled := self._schedule():
            self._passes += 1
            self._forward(scheduled)

    def collect_events(self) -> Iterator[tuple[Sequence, Event]]:
        """Run every sequence up to its next forward request, or for MAX_EVENTS events; yields the events."""
        for sequence in list(self.sequences):
            for event in islice(sequence.events(), MAX_EVENTS):
                yield sequence, event
        self.sequences = [sequence for sequence in self.sequences if not sequence.ended]

    @property
    def is_preempting(self) -> bool:
        """True while sequences are preempted for want of memory, so that no other should be admitted."""
        waiting = [sequence for sequence in self.sequences if sequence.forward_request]
        return len(self._resident()) < len(waiting)

    def _resident(self) -> list[Scheduled]:
        """The sequences that wait for a pass, in order of arrival, as long as their KV fits in the device tier
        together.

        The first sequence of a pool is always resident: its pages spill.
        """
        waiting = [(sequence, request) for sequence in self.sequences if (request := sequence.forward_request)]
        used, resident = Counter[Pool](), list[Scheduled]()
        for sequence, request in waiting:
            pool, need = _pool(request), _bytes_needed(request)
            limit = pool.device_tier.limit
            if limit is None or not used[pool] or used[pool] + need <= limit:
                used[pool] += need
                resident.append((sequence, request))
        return resident

    def _schedule(self) -> list[Scheduled]:
        """Choose the next pass: every sequence that decodes and, while there is room, those waiting longest."""
        scheduled, room, rope = list[Scheduled](), self._max_prefill_tokens, None
        resident = self._resident()
        decoding = sum(_prefill_tokens(request) <= MAX_DECODE_TOKENS for _, request in resident)
        no_long_chunk = self._in_order and decoding >= FULL_DECODE_BATCH
        in_turn = resident if self._in_order else sorted(resident, key=lambda one: one[0].last_pass)
        for sequence, request in in_turn:
            size = _prefill_tokens(request)
            if no_long_chunk and size >= self._max_prefill_tokens:
                continue
            rope = rope if scheduled else _pool(request).rope
            if _pool(request).rope is not rope:  # a pass has one RoPE scaling
                continue
            if size > MAX_DECODE_TOKENS and (size <= room or room == self._max_prefill_tokens):
                room -= size
            elif size > MAX_DECODE_TOKENS:
                continue
            scheduled.append((sequence, request))
        return scheduled

    def _forward(self, scheduled: list[Scheduled]) -> None:
        """Compute one pass. After a cancel, raise it in the cancelled sequences; after an error, compute one by one."""
        cancelled: CancelCheck = lambda: any(sequence.cancelled() for sequence, _ in scheduled)  # noqa: E731
        forward_requests = [request for _, forward in scheduled for request in requests_of(forward)]
        try:
            logits = iter(self._compute(forward_requests, cancelled))
        except Exception as e:
            self._recover(scheduled, e)
            return
        for sequence, forward in scheduled:
            sequence.last_pass = self._passes
            sequence.resume(logits_for(forward, list(islice(logits, len(requests_of(forward))))))

    def _recover(self, scheduled: list[Scheduled], error: Exception) -> None:
        if len(scheduled) == 1:
            scheduled[0][0].fail(error)
        elif isinstance(error, Cancelled):
            for sequence, _ in scheduled:
                if sequence.cancelled():
                    sequence.fail(error)  # the others are as before, and are scheduled again
        else:
            for one in scheduled:
                self._forward([one])


def _pool(forward: AwaitedForward) -> Pool:
    return requests_of(forward)[0].cache.pool


def _prefill_tokens(forward: AwaitedForward) -> int:
    """Returns the most tokens of one sequence: few are decoded together with those of others, more are a chunk."""
    return max(len(request.tokens) for request in requests_of(forward))


def _bytes_needed(forward: AwaitedForward) -> int:
    """Returns the bytes of a sequence after the pass; the forks of a group share all but their open pages."""
    first, *others = requests_of(forward)
    return first.cache.bytes_with(len(first.tokens)) + sum(other.cache.open_page.nbytes for other in others)
