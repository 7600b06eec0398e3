"""Reads the files attached to a question, and reports the files that cannot be read, with the reason."""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localctx.engine.events import Note
from localctx.errors import DocumentError

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.session import Session


def read_attached(session: "Session", files: Sequence[str]) -> Generator[Note, None, list[str]]:
    """Read files into the library and return the ids of their documents. Yields a Note for each unreadable file.

    If no file can be read, raises the DocumentError of the last file. Errors name files without their folders.
    """
    documents, bad = list[str](), list[DocumentError]()
    for file in files:
        try:
            documents += session.workflows.store([file])
        except DocumentError as e:
            name = Path(file).name
            bad.append(DocumentError(e.problem.replace(file, name), e.remedy.replace(file, name)))
    last = bad.pop() if bad and not documents else None
    for error in bad:
        yield Note(f"Left out: {error}")
    if last:
        raise last
    return documents
