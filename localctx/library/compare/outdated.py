"""Finds stored answers and summaries that rest on clauses which a newer version of their document changed."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from localctx.document_parts import tell_part
from localctx.library.compare.compare_documents import compare_documents
from localctx.library.compare.comparison import ClauseChange
from localctx.store.documents import DocumentRow
from localctx.store.store import Store

OutdatedKind = Literal["chat", "answer", "summary"]
_MOST_CHARACTERS = 80  # of a deleted clause in a line


@dataclass(frozen=True)
class OutdatedText:
    """A stored ``text`` that cites clauses of an older version of a document, where the newest version reads otherwise.

    ``kind`` is ``chat`` for an answer in a chat, ``answer`` for an answer that ``summarize --question`` or ``table``
    stored, and ``summary`` for a summary. For an answer in a chat, ``chat`` is the id of the chat and ``message`` the
    id of the message. ``question`` is empty for a summary. ``document`` is the id of the older version, ``name`` its
    file, ``newest`` the id of the newest. ``changes`` are the cited clauses that changed.
    """

    kind: OutdatedKind
    document: str
    newest: str
    name: str
    question: str
    text: str
    changes: tuple[ClauseChange, ...]
    chat: str = ""
    message: int = 0

    @property
    def lines(self) -> list[str]:
        """The changes, a line for each clause, such as ``1,200 -> 1,300 (page 2)``."""
        return [_line(change) for change in self.changes]

    def to_json(self) -> dict[str, Any]:
        """Returns the fields and the ``lines`` as JSON."""
        return {**asdict(self), "lines": self.lines}


def outdated_texts(store: Store, documents: Iterable[str] | None = None) -> Iterator[OutdatedText]:
    """Yields the outdated texts that cite the older versions ``documents`` (ids; None: any older version). Each version
    with such texts is compared with the newest one, without a model.
    """
    rows = {row.id: row for row in store.documents.all()}
    for document in rows if documents is None else documents:
        row = rows.get(document)
        if row and row.superseded in rows and (texts := list(_stored_texts(store, row))):
            yield from _outdated(store, row, _newest(rows, row), texts)


def older_versions(store: Store, newest: Collection[str]) -> list[str]:
    """Returns the ids of the older versions of the documents ``newest`` (ids)."""
    rows = {row.id: row for row in store.documents.all()}
    return [row.id for row in rows.values() if row.superseded and _newest(rows, row).id in newest]


def _newest(rows: Mapping[str, DocumentRow], row: DocumentRow) -> DocumentRow:
    seen = {row.id}
    while (following := row.superseded) and following in rows and following not in seen:
        row = rows[following]
        seen.add(following)
    return row


_StoredText = tuple[dict[str, Any], Sequence[Mapping[str, Any]]]
"""Fields of an OutdatedText, and the citations of the text as JSON."""


def _stored_texts(store: Store, row: DocumentRow) -> Iterator[_StoredText]:
    for message in store.chats.citing(row.id):
        question = store.chats.message(message.parent).text if message.parent else ""
        about = {"kind": "chat", "question": question, "chat": message.chat, "message": message.id}
        yield about | {"text": message.text}, message.citations
    for result in store.results.of(row.id):
        if summary := result.get("summary"):
            yield {"kind": "summary", "question": "", "text": summary}, result["citations"]
        for answer in result.get("answers", ()):
            about = {"kind": "answer", "question": answer["question"], "text": answer["answer"]}
            yield about, answer["citations"]


def _outdated(
    store: Store, row: DocumentRow, newest: DocumentRow, texts: Iterable[_StoredText]
) -> Iterator[OutdatedText]:
    old, new = store.documents.stored(row.id), store.documents.stored(newest.id)
    assert old, "its row was read"
    assert new, "its row was read"
    changes = [change for change in compare_documents(old, new).changes if change.state in ("changed", "deleted")]
    for fields, citations in texts:
        cited = [(c["start"], c["end"]) for c in citations if c["document"] == row.id]
        if found := tuple(change for change in changes if _is_cited(change, cited)):
            yield OutdatedText(document=row.id, newest=newest.id, name=row.name, changes=found, **fields)


def _is_cited(change: ClauseChange, cited: Iterable[tuple[int, int]]) -> bool:
    return any(change.old and start < change.old.end and change.old.start < end for start, end in cited)


def _line(change: ClauseChange) -> str:
    place = change.new or change.old
    assert place, "a change has a version"
    where = f" ({tell_part(place.page)})" if place.page else ""
    text = change.old.text if change.old else ""
    deleted = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS].rstrip()} ..."
    return ("; ".join(change.lines) or f"deleted: {deleted}") + where
