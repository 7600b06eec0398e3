"""Reads the files attached to a question, and reports the files that cannot be read, with the reason."""

from collections.abc import Collection, Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localctx.engine.events import Note
from localctx.errors import DocumentError

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.session import Session


def read_attached(
    session: "Session", files: Sequence[str], already_reported: Collection[str] = ()
) -> Generator[Note, None, list[str]]:
    """Read files into the library and return the ids of their documents.

    Yields a Note with the reason for each unreadable file, except for those whose reasons the user has seen
    (``already_reported``). If no file can be read, raises a DocumentError that names the files: they are back in the
    question box then, which tells the reasons. Errors name files without their folders.
    """
    documents, bad = list[str](), dict[str, DocumentError]()
    for file in files:
        try:
            documents += session.workflows.store([file])
        except DocumentError as e:
            name = Path(file).name
            bad[file] = DocumentError(e.problem.replace(file, name), e.remedy.replace(file, name))
    if bad and not documents:
        raise DocumentError(f"{_names(bad)} cannot be read", "take out the files, or replace them, to ask this")
    yield from (Note(f"Skipped: {error}") for file, error in bad.items() if file not in already_reported)
    return documents


def _names(files: Iterable[str]) -> str:
    *others, last = (Path(file).name for file in files)
    return " and ".join(filter(None, [", ".join(others), last]))
