"""The scheduler: computes forward passes for several sequences at once, so that the weights are read once for all.

Sequences are added and removed between any two passes (continuous batching: Orca, OSDI 2022). A pass computes the next
token of every decoding sequence, and chunks of the prefilling ones in turn (Sarathi-Serve, arXiv:2403.02310), so that
no answer waits for another sequence's whole prompt. If memory is short, the sequences added last are preempted (vLLM,
arXiv:2309.06180): passes leave them out, and their pages are the first to move to lower tiers.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from torch import Tensor

from localctx.engine.coroutine import (
    AwaitedForward,
    CancelCheck,
    EngineCoroutine,
    ForwardGroup,
    Result,
    logits_for,
    never_cancelled,
    requests_of,
    run_to_end,
)
from localctx.engine.events import Event
from localctx.engine.sequence import Sequence
from localctx.errors import Cancelled
from localctx.kv.backends.backend import MAX_DECODE_TOKENS
from localctx.kv.sequence_cache import SequenceMemory
from localctx.models.base import ForwardRequest

FULL_DECODE_BATCH = 8  # decoding sequences that fill a pass well enough without a long prefill chunk
MAX_EVENTS = 64  # of one sequence between two passes, so that a coroutine without forward passes blocks no other

ForwardFunction = Callable[[list[ForwardRequest], CancelCheck], list[Tensor]]
Scheduled = tuple[Sequence, AwaitedForward]


class Batcher:
    """Chooses the forward requests of each pass. The prefill requests of a pass have at most ``max_prefill_tokens``
    tokens together; a larger request is the only prefill request of its pass.

    If ``in_order``, sequences prefill in the order in which they were added. While FULL_DECODE_BATCH sequences or more
    are decoding, prefill requests of ``max_prefill_tokens`` tokens or more then wait. In this way, long sequences end a
    few at a time. Otherwise all would be prefilled first, and would end at nearly the same time.
    """

    def __init__(self, max_prefill_tokens: int = 512, in_order: bool = False) -> None:
        self._max_prefill_tokens, self._in_order = max_prefill_tokens, in_order
        self._passes = 0
        self._computing = list[Scheduled]()
        self.sequences = list[Sequence]()

    def add(self, coroutine: EngineCoroutine[Result], cancelled: CancelCheck = never_cancelled) -> Sequence[Result]:
        """Add ``coroutine`` as a new sequence. ``cancelled`` is called to check whether the sequence was cancelled."""
        sequence = Sequence(coroutine, cancelled)
        self.sequences.append(sequence)
        return sequence

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence, and stop its coroutine where it is."""
        self.sequences.remove(sequence)
        sequence.close()

    def forward(self) -> EngineCoroutine[None]:
        """Yield the next pass as a ``ForwardGroup``, and resume its sequences with the logits. If the pass was
        cancelled, the error is raised in the cancelled sequences. After any other error, the sequences of the pass are
        computed one by one.
        """
        if scheduled := self._schedule():
            self._passes += 1
            yield from self._forward(scheduled)

    def cancelled(self) -> bool:
        """Returns True if a sequence in the current pass was cancelled."""
        return any(sequence.cancelled() for sequence, _ in self._computing)

    def collect_events(self) -> Iterator[tuple[Sequence, Event]]:
        """Run every sequence up to its next forward request, or for MAX_EVENTS events. Yields pairs of a sequence and
        its event.
        """
        for sequence in list(self.sequences):
            for event in islice(sequence.events(), MAX_EVENTS):
                yield sequence, event
        self.sequences = [sequence for sequence in self.sequences if not sequence.ended]

    @property
    def is_preempting(self) -> bool:
        """True while sequences are left out of passes (preempted) because memory is short. Start no new sequence
        meanwhile.
        """
        waiting = [sequence for sequence in self.sequences if sequence.forward_request]
        return len(self._resident()) < len(waiting)

    def _resident(self) -> list[Scheduled]:
        """Returns the sequences that wait for a pass, in order of arrival, whose KV fits in the device tier together.

        The first sequence of a pool is always resident, because its pages can spill.
        """
        waiting = [(sequence, request) for sequence in self.sequences if (request := sequence.forward_request)]
        used, resident = Counter[int](), list[Scheduled]()
        for sequence, request in waiting:
            pool = _pool(request)
            need = 0 if (limit := pool.device_limit) is None else _bytes_needed(request)
            if limit is None or not used[id(pool)] or used[id(pool)] + need <= limit:
                used[id(pool)] += need
                resident.append((sequence, request))
        return resident

    def _schedule(self) -> list[Scheduled]:
        """Choose the next pass: every decoding sequence and, while there is room, the prefill requests that have waited
        longest.
        """
        scheduled, room, rope = list[Scheduled](), self._max_prefill_tokens, None
        resident = self._resident()
        decoding = sum(not _prefill_tokens(request) for _, request in resident)
        no_long_chunk = self._in_order and decoding >= FULL_DECODE_BATCH
        in_turn = resident if self._in_order else sorted(resident, key=lambda one: one[0].last_pass)
        for sequence, request in in_turn:
            size = _prefill_tokens(request)
            if no_long_chunk and size >= self._max_prefill_tokens:
                continue
            rope = rope if scheduled else _pool(request).rope
            if _pool(request).rope is not rope:  # a pass has one RoPE scaling
                continue
            if size and (size <= room or room == self._max_prefill_tokens):
                room -= size
            elif size:
                continue
            scheduled.append((sequence, request))
        return scheduled

    def _forward(self, scheduled: list[Scheduled]) -> EngineCoroutine[None]:
        self._computing = scheduled
        try:
            logits = iter((yield ForwardGroup([one for _, forward in scheduled for one in requests_of(forward)])))
        except Exception as e:
            yield from self._recover(scheduled, e)
            return
        for sequence, forward in scheduled:
            sequence.last_pass = self._passes
            sequence.resume(logits_for(forward, list(islice(logits, len(requests_of(forward))))))

    def _recover(self, scheduled: list[Scheduled], error: Exception) -> EngineCoroutine[None]:
        if len(scheduled) == 1:
            scheduled[0][0].fail(error)
        elif isinstance(error, Cancelled):
            cancelled = [sequence for sequence, _ in scheduled if sequence.cancelled()]
            for sequence in cancelled or [sequence for sequence, _ in scheduled]:
                sequence.fail(error)  # the others are as before, and are scheduled again
        else:
            for one in scheduled:
                yield from self._forward([one])


class Scheduler(Batcher):
    """Runs sequences together: ``compute`` computes each pass that the ``Batcher`` chooses. ``max_prefill_tokens`` and
    ``in_order`` are arguments of ``Batcher``.
    """

    def __init__(self, compute: ForwardFunction, max_prefill_tokens: int = 512, in_order: bool = False) -> None:
        super().__init__(max_prefill_tokens, in_order)
        self._compute = compute

    def run(self) -> Iterator[tuple[Sequence, Event]]:
        """Step until every sequence has ended. Yields pairs of a sequence and its event. Sequences may be added and
        removed between two events.
        """
        while self.sequences:
            yield from self.step()

    def step(self) -> Iterator[tuple[Sequence, Event]]:
        """Run all sequences up to their next forward request, and yield pairs of a sequence and its event. Then compute
        one pass. Ended sequences are removed.
        """
        yield from self.collect_events()
        run_to_end(self.forward(), lambda forward: self._compute(requests_of(forward), self.cancelled))


def _pool(forward: AwaitedForward) -> SequenceMemory:
    return requests_of(forward)[0].cache.pool


def _prefill_tokens(forward: AwaitedForward) -> int:
    """Returns the tokens of the requests that prefill; 0 if all decode."""
    return sum(len(r.tokens) for r in requests_of(forward) if len(r.tokens) > MAX_DECODE_TOKENS)


def _bytes_needed(forward: AwaitedForward) -> int:
    """Returns the size in bytes that the caches of the requests have after the pass."""
    return _pool(forward).bytes_needed([(request.cache, len(request.tokens)) for request in requests_of(forward)])
