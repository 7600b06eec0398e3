"""Takes a census: puts one question to every passage of many documents, and certifies how many were asked."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from localctx.engine.events import Progress
from localctx.engine.request_report import EverywhereReport
from localctx.errors import DocumentError
from localctx.library.add import Added
from localctx.results import Answer
from localctx.workflows.manage_library import LibraryWorkflow

Unread = tuple[str, str]
"""The path of a file that could not be read, and the reason."""


@dataclass(frozen=True)
class Certificate:
    """Says how much of a census was done: ``asked`` of the ``passages`` passages in ``documents`` documents were asked.
    ``answered`` of the asked passages answer the question, ``unsure`` may answer it, ``silent`` do not. If ``best`` is
    not 0, only so many passages were to be asked. ``unread`` are the files that could not be read.
    """

    documents: int
    passages: int
    best: int
    asked: int
    answered: int
    unsure: int
    silent: int
    unread: tuple[Unread, ...]

    @property
    def complete(self) -> bool:
        """True if every passage of every file was asked."""
        return self.asked == self.passages and not self.unread

    def __str__(self) -> str:
        """Returns the certificate as a sentence."""
        of = f"{self.asked:,} of {self.passages:,} passages in {_documents(self.documents)}"
        counts = f"{self.answered:,} answered, {self.unsure:,} unsure, {self.silent:,} without an answer"
        unread = f"; {_documents(len(self.unread))} could not be read" if self.unread else ""
        return f"Asked {of}: {counts}{unread}."

    def to_json(self) -> dict[str, Any]:
        """Returns the fields and ``complete`` as JSON."""
        return {**asdict(self), "complete": self.complete}


@dataclass(frozen=True)
class Census:
    """The result of a census: the ``answer`` and its ``certificate``. ``answer.groups`` lists the different answers,
    each with the passages that gave it.
    """

    answer: Answer
    certificate: Certificate


@dataclass(frozen=True)
class CensusDocuments:
    """The documents of a census: their ids, and the files that could not be read."""

    ids: tuple[str, ...]
    unread: tuple[Unread, ...]

    def certificate(self, report: EverywhereReport) -> Certificate:
        """Returns the certificate of a census of these documents. ``report`` is the report on that census."""
        counts = (report.passages, report.best, report.asked, report.answered, report.unsure, report.silent)
        return Certificate(len(self.ids), *counts, self.unread)


def read_documents(
    library: LibraryWorkflow, files: Sequence[str], on_progress: Callable[[Progress], None]
) -> CensusDocuments:
    """Add ``files`` to the library, and return the documents. Files that did not change are not read again.
    ``on_progress`` is called after each file.

    A file that cannot be read is listed in ``unread`` of the result. Raises DocumentError if no file can be read;
    StoreError, Cancelled.
    """
    added = list[Added]()
    for result in library.add(files):
        added.append(result)
        on_progress(Progress("documents", len(added), len(files)))
    read = dict.fromkeys(result.id for result in added if result.id)
    unread = tuple((result.path, result.why) for result in added if not result.id)
    if not read:
        why = unread[0][1] if unread else "there is no document"
        raise DocumentError(f"nothing can be asked: {why}", "name files, or folders that have some")
    return CensusDocuments(tuple(read), unread)


def _documents(count: int) -> str:
    return f"{count:,} document{'s' * (count != 1)}"
