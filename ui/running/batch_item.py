"""A document of the window's batch, and the states that it goes through."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localctx.batch.jobs import DocumentJob
from localctx.engine.events import Progress, Token
from localctx.serving.worker import Queued
from localctx.ui.everyday import words
from localctx.ui.render import phase_share

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.batch.run_batch import Outcome

FINISHED = ("done", "skipped", "failed")
_LATER = "Waits until this computer is idle"
STATES = {"later": _LATER, "waiting": "Waiting", "queued": "Waiting", "running": "Reading", "failed": "Failed"}
"""The states of a document that has no result yet, in words."""

PENDING = ("waiting", "queued", "running")
"""The states of a document that runs, or is to run without a wait for an idle machine."""


@dataclass
class BatchItem:
    """A document of a batch, shown as ``name``. The source of its ``job`` is its id.

    ``state`` is later, waiting, queued, running, or one of FINISHED. ``detail`` is its progress, or the reason why it
    failed.
    """

    job: DocumentJob
    name: str
    state: str = "waiting"
    detail: str = ""
    written: int = 0
    outcome: "Outcome | None" = None

    @property
    def entry(self) -> dict[str, Any]:
        """The result in the form that outputs contain; {} if there is none."""
        return dict(self.outcome.entry) if self.outcome else {}

    def handle(self, event: Any) -> None:
        """Update the state and detail from an event of the document's job."""
        if self.state == "queued" and not (isinstance(event, Queued) and event.position):
            self.state = "running"
        match event:
            case Progress():
                self.detail = phase_share(event)
            case Token():
                self.written += 1
                self.detail = f"{words(self.written)} written"

    def set_state(self, state: str, detail: str = "") -> None:
        """Set the state and its ``detail``, in which the name replaces the id."""
        self.state, self.detail = state, detail.replace(self.job.source, self.name)

    def reset(self) -> None:
        """Forget the result and set the state to waiting."""
        self.state, self.detail, self.written, self.outcome = "waiting", "", 0, None
