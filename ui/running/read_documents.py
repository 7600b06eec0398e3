"""Finds facts about the documents of a tab in jobs: adds files to the library, and describes stored documents."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localctx.library.reading_mark import find_mark
from localctx.serving.worker import SessionJob
from localctx.workflows.ahead.document_guide import NOTHING_TOLD, DocumentGuide, document_guide

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.session import Session


@dataclass
class ReadDocument:
    """A document of the chat, or a file in the question box.

    ``document`` is the id of the document once it is stored, else "". ``parts`` is the number of its parts, and
    ``part`` their kind, such as page. ``guide`` tells what it is about. ``read`` is True once the model has read it.
    ``error`` says why it could not be parsed, or is "".
    """

    source: str
    name: str = ""
    document: str = ""
    part: str = ""
    parts: int = 0
    characters: int = 0
    guide: DocumentGuide = NOTHING_TOLD
    read: bool = False
    error: str = ""


def known_documents(
    files: Iterable[str], documents: Iterable[str], known: Iterable[ReadDocument]
) -> list[ReadDocument]:
    """Returns the ReadDocument of each of ``files`` (paths) and ``documents`` (ids): one that is ``known`` already, or
    a new one, about which nothing is known yet. A new file already has its name.
    """
    by_source = {key: d for d in known if not d.error for key in (d.source, d.document) if key}
    found = [by_source.get(file) or ReadDocument(file, Path(file).name) for file in files]
    stored = [by_source.get(id) or ReadDocument(id, document=id) for id in documents]
    return [*found, *(replace(document, source=document.document) for document in stored)]


def adding(path: str) -> SessionJob:
    """Returns a job that adds a file to the library."""

    def job(session: "Session") -> Generator[Any, None, None]:
        with session.workflows.library() as library:
            yield from library.add([path])

    return job


def describing(documents: Sequence[str], until: str) -> SessionJob:
    """Returns a job that yields a ReadDocument for each of the stored ``documents`` (ids), then Candidates for
    questions. What is after the mark ``until`` in the only document is not told.
    """

    def job(session: "Session") -> Generator[Any, None, None]:
        store, settings = session.store, session.settings
        prepared = store.caches.prepared_documents(settings.model)
        for stored in filter(None, map(store.documents.stored, documents)):
            row, told = stored.row, stored.beginning(find_mark(stored, until)) if until else stored
            part, parts = store.documents.count_parts(row.id)
            is_read = row.id in prepared and not until
            yield ReadDocument(row.id, row.name, row.id, part, parts, row.chars, document_guide(told), is_read)
        yield session.workflows.readiness.candidates(documents, until)

    return job
