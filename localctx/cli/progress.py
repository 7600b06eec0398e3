"""Shows the progress of a batch on a terminal."""

import sys
from collections.abc import Sequence

from tqdm import tqdm

from localctx.batch.jobs import DocumentJob
from localctx.batch.run_batch import Outcome
from localctx.cli.printing import print_error
from localctx.cli.terminal import Terminal, bar_columns, without_bars
from localctx.engine.events import Event, Note, Progress

_BAR = "{desc} {bar:24} {percentage:3.0f} %, {remaining} left {postfix}"


class BatchProgress:
    """Shows the progress of a batch: on a terminal a bar with the time left, else a line per document.

    Failures are always printed.
    """

    def __init__(self, terminal: Terminal, jobs: Sequence[DocumentJob]) -> None:
        self._terminal, self.count, self._ended = terminal, len(jobs), 0
        self._running = set[DocumentJob]()
        self._bar = tqdm(
            total=sum(map(_weight, jobs)),
            file=sys.stderr,
            leave=False,
            smoothing=0,
            ncols=bar_columns(),
            bar_format=_BAR,
            disable=not terminal.interactive,
        )
        self._bar.set_description_str(f"0/{self.count}")

    def close(self) -> None:
        """Remove the progress bar."""
        self._bar.close()

    def show(self, job: DocumentJob | None, event: Event) -> None:
        """Show an event of a document, or of the whole batch (``job`` None).

        If several documents run, the bar shows how many run, instead of the progress of one document.
        """
        if job:
            self._running.add(job)
        if len(self._running) > 1:
            self._bar.set_postfix_str(f"{len(self._running)} at a time")
        elif isinstance(event, Progress) and event.total:
            self._bar.set_postfix_str(f"{event.phase} {event.done:,}/{event.total:,}")
        if isinstance(event, Note):
            with without_bars():
                self._terminal.say(event.text)

    def ended(self, line: str, outcome: Outcome) -> None:
        """Advance the bar for a finished document. Its ``line`` is printed if the document failed, or if there is no
        terminal to show the bar.
        """
        self._running.discard(outcome.job)
        self._ended += 1
        if outcome.status == "done":
            self._bar.update(_weight(outcome.job))
        else:
            self._bar.total -= _weight(outcome.job)  # it took no time, so the estimate must not count it
        self._bar.set_description_str(f"{self._ended}/{self.count}")
        with without_bars():
            if outcome.status == "failed":
                print_error(f"localctx: {line}")
            elif not self._terminal.interactive:
                self._terminal.say(line)


def _weight(job: DocumentJob) -> int:
    return max(1, job.nbytes)
