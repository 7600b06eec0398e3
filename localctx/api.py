"""The public API beside ``Session``: functions to open, compare and ask about documents, and the ``Library`` of stored
documents.
"""

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localctx.engine.events import Done, Progress
from localctx.engine.planning.capacity import Capacity, plan_memory
from localctx.engine.request_report import AnswerReport
from localctx.library.add import Added
from localctx.library.search.search import Passage
from localctx.results import Answer
from localctx.session import Session, ignore
from localctx.settings import load_settings, parse_size
from localctx.store.documents import DocumentRow

if TYPE_CHECKING:
    from localctx.batch.census import Census
    from localctx.batch.table.cells import AnswerRow
    from localctx.batch.table.columns import TableColumn
    from localctx.library.compare.comparison import Comparison
    from localctx.library.compare.outdated import OutdatedText

DocumentSource = str | PathLike[str]


def open(*sources: DocumentSource, on_progress: Callable[[Progress], None] = ignore, **settings: Any) -> Session:
    """Returns a Session to ask questions about ``sources``: files, ``-`` for standard input, or ids of stored
    documents. Use it in a ``with`` statement.

    ``settings`` are fields of ``Settings`` by name (``model="..."``, ``max_tokens=64``), and ``home``, the data folder.
    Other settings come from the environment and the settings file, as for the command. ``on_progress`` is called while
    a model is downloaded or loaded. Nothing is read before the first question. Raises UsageError for an invalid
    setting.
    """
    return Session(load_settings(**settings), on_progress, sources=[fspath(source) for source in sources])


def plan(context: int | None = None, *, device_memory: str | None = None, **settings: Any) -> Capacity:
    """Plan the memory that a model needs for ``context`` tokens (None: the model's window), and the context that would
    fit.

    No weights are loaded. Sizes are in bytes. ``device_memory`` (``"16GiB"``) replaces the measured free memory. Raises
    UsageError, ModelError.
    """
    memory = parse_size(device_memory, "device_memory") if device_memory else None
    return plan_memory(load_settings(**settings), context=context, device_memory=memory)


def table(
    *sources: DocumentSource,
    columns: "Sequence[TableColumn | str]",
    on_progress: Callable[[Progress], None] = ignore,
    **settings: Any,
) -> "list[AnswerRow]":
    """Ask the same questions about each of the files, folders and patterns ``sources``. Returns a row for each file.

    A column is a ``TableColumn``, or text in the format of ``localctx table --ask``. Answers are stored, so another
    call asks only about new documents and new columns. For a file that cannot be read, the row has the reason and no
    cells. Raises UserError.
    """
    from localctx.batch.table.columns import parse_column
    from localctx.batch.table.fill import fill_table, questions_of

    named = [parse_column(column) if isinstance(column, str) else column for column in columns]
    adapted = questions_of(named).adapted(load_settings(**settings))
    with Session(adapted, on_progress) as session, session.workflows.summaries() as summarizing:
        files = [fspath(source) for source in sources]
        return fill_table(summarizing, session.forward_each, files, named)


def census(
    *sources: DocumentSource,
    question: str,
    best: int = 0,
    on_progress: Callable[[Progress], None] = ignore,
    **settings: Any,
) -> "Census":
    """Ask ``question`` about every passage of the files, folders and patterns ``sources``. If ``best`` is given, only
    that many passages are used, those most likely to answer. Answers are stored, so a stopped census can continue.
    Raises UserError.
    """
    from localctx.batch.census import Census, read_documents
    from localctx.library.folders.find import find_documents

    with Session(load_settings(**settings), on_progress) as session:
        files = list(find_documents([fspath(source) for source in sources], lambda *ignored: None))
        with session.workflows.library() as library:
            documents, done = read_documents(library, files, on_progress), list[Done]()
        for event in session.run(session.workflows.questions.census(documents.ids, question, best)):
            done += [event] if isinstance(event, Done) else []
    report = done[-1].report
    assert isinstance(report, AnswerReport)
    assert report.everywhere, "every passage was asked"
    return Census(Answer.from_report(report, (), done[-1].failed), documents.certificate(report.everywhere))


def compare(old: DocumentSource, new: DocumentSource, **settings: Any) -> "Comparison":
    """Compare two versions of a document clause by clause, without a model. Returns the changes and their places.

    ``old`` and ``new`` are files, ``-`` for standard input, or ids or names of stored documents. Nothing is stored.
    Raises DocumentError, UsageError.
    """
    from localctx.library.compare.compare_documents import compare_documents
    from localctx.library.compare.read_versions import check_versions, read_version
    from localctx.library.parsers.sandbox import ReadOptions

    chosen, sources = load_settings(**settings), (fspath(old), fspath(new))
    check_versions(sources)
    return compare_documents(*(read_version(chosen.home, source, ReadOptions(chosen.ocr)) for source in sources))


class Library:
    """The stored documents of the data folder ``home`` (None: the data folder that the command uses).

    Use it in a ``with`` statement, from one thread at a time. Every method raises StoreError if the folder cannot be
    used.
    """

    def __init__(
        self, home: Path | None = None, *, on_progress: Callable[[Progress], None] = ignore, **settings: Any
    ) -> None:
        self._session = Session(load_settings(home=home, **settings), on_progress)

    def __enter__(self) -> "Library":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        self._session.close()

    @property
    def documents(self) -> list[DocumentRow]:
        """All stored documents, with id, name, path, size and dates."""
        return list(self._session.store.documents.all())

    def add(self, *sources: DocumentSource) -> list[Added]:
        """Read files into the library and make them searchable. Returns a result for each file. If a file cannot be
        read, its result has the reason, and the other files are still added.
        """
        with self._session.workflows.library() as library:
            results = list(library.add([fspath(source) for source in sources]))
            library.index({result.id for result in results if result.id})
        return results

    def remove(self, document: str) -> int:
        """Delete a document and its pages. ``document`` is its id, the start of its id, its name or its path. Returns
        the number of bytes freed.

        If several files have the same text, the name or path of one of them removes only that file. Raises
        DocumentError for a document that does not exist.
        """
        store = self._session.store
        found = store.documents.find(document).id
        if file := store.documents.files.one_of_several(found, document):
            store.documents.files.forget(file.path)
            return 0
        return store.remove_document(found)

    def search(self, words: str, *, top: int = 10, documents: Sequence[str] | None = None) -> list[Passage]:
        """Returns the ``top`` best passages for ``words``, best first. ``documents`` are the ids of the documents to
        search (None: all).
        """
        with self._session.workflows.library() as library:
            return library.search(words, documents, top)[0].passages

    def outdated(self) -> "list[OutdatedText]":
        """Returns the stored answers and summaries that rest on text which a newer version of the document changed."""
        from localctx.library.compare.outdated import outdated_texts

        return list(outdated_texts(self._session.store))

    def ask(self, question: str) -> Answer:
        """Answer ``question`` from passages of the whole library, like ``Session.ask``. Raises NothingFound if no
        passage matches.
        """
        return self._session.ask(question, library=True)
