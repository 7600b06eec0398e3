"""Board: what the documents of a batch are at, on a terminal."""

import sys
from collections.abc import Sequence

from tqdm import tqdm

from localctx.batch.jobs import DocumentJob
from localctx.batch.run_batch import Outcome
from localctx.cli.terminal import Terminal, beside_bars
from localctx.engine.events import Event, Note, Progress

_BAR = "{desc} {bar:24} {percentage:3.0f} %, {remaining} left {postfix}"


class BatchProgress:
    """The documents of a batch: a bar with the time left where a person watches, else a line each. What failed is told
    in any case.
    """

    def __init__(self, terminal: Terminal, jobs: Sequence[DocumentJob]) -> None:
        self._terminal, self.count, self._done = terminal, len(jobs), 0
        self._open = set[DocumentJob]()
        self._bar = tqdm(
            total=sum(map(_weight, jobs)),
            file=sys.stderr,
            leave=False,
            smoothing=0,
            bar_format=_BAR,
            disable=not terminal.watched,
        )
        self._bar.set_description_str(f"0/{self.count}")

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()

    def show(self, job: DocumentJob | None, event: Event) -> None:
        """What a document is at (None: the whole batch); where there are several, how many."""
        if job:
            self._open.add(job)
        if len(self._open) > 1:
            self._bar.set_postfix_str(f"{len(self._open)} at once")
        elif isinstance(event, Progress) and event.total:
            self._bar.set_postfix_str(f"{event.phase} {event.done:,}/{event.total:,}")
        if isinstance(event, Note):
            with beside_bars():
                self._terminal.say(event.text)

    def ended(self, line: str, outcome: Outcome) -> None:
        """A document is done, skipped or has failed."""
        self._open.discard(outcome.job)
        self._done += 1
        if outcome.status == "done":
            self._bar.update(_weight(outcome.job))
        else:
            self._bar.total -= _weight(outcome.job)  # took no time, and says nothing about the rest
        self._bar.set_description_str(f"{self._done}/{self.count}")
        with beside_bars():
            if outcome.status == "failed":
                print(f"localctx: {line}", file=sys.stderr, flush=True)
            elif not self._terminal.watched:
                self._terminal.say(line)


def _weight(job: DocumentJob) -> int:
    return max(1, job.nbytes)
