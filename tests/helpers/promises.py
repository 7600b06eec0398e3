"""The engine's promises, asked of a session: the logits after every position of a prompt and its answer, in two ways.

``restored``: a question on a document whose pages were kept, beside one that read it. ``alone``: beside two others.
``drafted``: with tokens guessed ahead. ``chunked``: read in small chunks. test_promises.py asks it of tiny models,
measure_promises.py of the default one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from localctx.engine.coroutine import EngineCoroutine, drive
from localctx.engine.events import Done, Event
from localctx.engine.scheduler import Scheduler
from localctx.kv.cache import Cache
from localctx.models.base import ForwardRequest
from localctx.session import Session

Logits = dict[int, Tensor]
"""The logits [vocabulary] after each position for which they were computed."""


class Recorder:
    """Computes feeds with ``session`` and notes the logits of each sequence; a position computed again counts anew."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.of = dict[Cache, Logits]()

    def __call__(self, feeds: Sequence[ForwardRequest], cancelled: Callable[[], bool] = lambda: False) -> list[Tensor]:
        """One pass."""
        ends = [feed.cache.length + len(feed.tokens) for feed in feeds]
        found = self._session.forward_each(feeds, cancelled)
        for feed, end, logits in zip(feeds, ends, found, strict=True):
            noted = self.of.setdefault(feed.cache, {})
            for i, row in enumerate(logits):
                noted[end - len(logits) + i] = row.clone()
        return found


def recorded(session: Session, asking: EngineCoroutine[None]) -> tuple[Logits, list[Event]]:
    """The logits of one question asked alone, and its events."""
    recorder = Recorder(session)
    events = list(drive(asking, lambda feed: recorder([feed])[0]))
    (logits,) = recorder.of.values()
    return logits, events


def ask(session: Session, file: Path, question: str, keep: bool = False) -> Logits:
    """The logits of one question on ``file`` asked alone."""
    return recorded(session, session.workflows.questions.ask([str(file)], question, keep))[0]


def restored(session: Session, file: Path, question: str) -> tuple[Logits, Logits]:
    """Read without anything kept; then with the document prepared."""
    cold = ask(session, file, question)
    *_, done = session.prepare(str(file))
    assert isinstance(done, Done)
    assert done.failed is None, done.failed
    warm = ask(session, file, question, keep=True)
    assert len(warm) < len(cold), "nothing was restored"
    return cold, warm


def alone(session: Session, file: Path, question: str, others: Sequence[str]) -> tuple[Logits, Logits]:
    """Alone; then beside ``others`` on the same document, which are at other places all the time."""
    recorder = Recorder(session)
    scheduler = Scheduler(recorder, max_prefill_tokens=session.settings.chunk)
    for asked in (question, *others):
        scheduler.add(session.workflows.questions.ask([str(file)], asked, False))
    list(scheduler.run())
    return ask(session, file, question), next(iter(recorder.of.values()))


def drafted(session: Session, file: Path, question: str) -> tuple[Logits, Logits]:
    """Token by token; then with guesses computed along."""
    return _under(session, file, question, draft=0), _under(session, file, question, draft=8)


def chunked(session: Session, file: Path, question: str, chunks: tuple[int, int]) -> tuple[Logits, Logits]:
    """Read in chunks of one size; then of another."""
    one, other = (_under(session, file, question, chunk=chunk) for chunk in chunks)
    return one, other


def _under(session: Session, file: Path, question: str, **changes: int) -> Logits:
    before = session.settings
    session.change(replace(before, **changes))
    try:
        return ask(session, file, question)
    finally:
        session.change(before)


def difference(one: Logits, other: Logits) -> tuple[int, float]:
    """Of the positions that both have logits after, how many differ in any bit, and the largest difference.

    Where the likeliest token differs, what follows is not compared: it comes after other tokens.
    """
    both = sorted(one.keys() & other.keys())
    assert both, "there is nothing to compare"
    apart = next((i for i, at in enumerate(both) if one[at].argmax() != other[at].argmax()), len(both))
    compared = both[: apart + 1]
    differ = [at for at in compared if not torch.equal(one[at], other[at])]
    return len(differ), max(float((one[at] - other[at]).abs().max()) for at in compared)
