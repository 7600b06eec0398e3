"""MCP server: lets editors and assistants search, ask, compare and read the library (Model Context Protocol)."""

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from localctx.document_parts import NEAREST, tell_part
from localctx.engine.coroutine import map_events
from localctx.engine.events import Done, Event
from localctx.engine.request_report import AnswerReport
from localctx.errors import Cancelled, UsageError, UserError
from localctx.serving.worker import EngineWorker
from localctx.session import Session
from localctx.settings import Settings
from localctx.version import __version__
from localctx.workflows.answer.every_passage import current_documents

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from localctx.library.search.search import Passage

INSTRUCTIONS = "Documents on this machine that localctx has read. Answers cite them; nothing leaves the machine."
MAX_PASSAGES, MAX_CHARACTERS = 50, 50_000

SearchWords = Annotated[str, "What is looked for, in words of the documents or by meaning."]
TopPassages = Annotated[int, f"The most passages, up to {MAX_PASSAGES}."]
AskedQuestion = Annotated[str, "A question in a sentence."]
AskedDocuments = Annotated[list[str] | None, "Ids of the documents to ask; none: all of the library."]
DocumentId = Annotated[str, "The id of a document, as list has it."]
TableColumns = Annotated[
    list[str], 'A column each, such as "supplier", "signed (date)" or "rent (money): How much is the rent?".'
]


class LibraryTools:
    """The tools of the MCP server. They run in the thread of ``worker``, and raise ToolError with a message for the
    user.
    """

    def __init__(self, worker: EngineWorker) -> None:
        self._worker = worker

    def search(self, words: SearchWords, top: TopPassages = 5) -> str:
        """Search the library; returns the best passages with their document's id and place."""

        def job(session: Session) -> Generator[Any, Any, str]:
            with session.workflows.library() as library:
                found, _ = library.search(words, None, max(1, min(top, MAX_PASSAGES)))
            yield from ()
            told = (f"[{p.document}] {_found_in(p)}\n{p.text.strip()}" for p in found.passages)
            return "\n\n".join(told) or "Nothing was found."

        return self._run(job)

    def ask(self, question: AskedQuestion, documents: AskedDocuments = None) -> str:
        """Ask documents, or the whole library; returns the answer and the words of the documents that it rests on."""

        def job(session: Session) -> Generator[Any, Any, str]:
            ids = [session.store.documents.find(document).id for document in documents or ()]
            done = list[Done]()

            def note(event: Event) -> None:
                done.extend([event] if isinstance(event, Done) else [])

            answering = session.workflows.questions.ask(ids, question, library=not ids)
            yield from map_events(answering, note)
            report = done[-1].report
            assert isinstance(report, AnswerReport)
            return _told(report)

        return self._run(job)

    def table(self, columns: TableColumns, documents: AskedDocuments = None) -> str:
        """Ask each document the same questions; returns a line of JSON a document, with a cell a column. A cell's state
        is found (its value is in the quotation), unsure, missing or corrected.
        """
        from localctx.batch.outputs import json_line
        from localctx.batch.table.columns import parse_column
        from localctx.batch.table.fill import fill_stored, questions_of

        def job(session: Session) -> Generator[Any, Any, str]:
            named, stored = [parse_column(column) for column in columns], session.store.documents
            rows = [stored.find(document) for document in documents or ()] or current_documents(session.store)
            session.change(questions_of(named).adapted(session.settings))
            with session.workflows.summaries() as summarizing:
                filled = yield from fill_stored(summarizing, rows, named)
            return "".join(json_line(row.to_json()) for row in filled) or "The library is empty."

        return self._run(job)

    def compare(self, old: DocumentId, new: DocumentId) -> str:
        """Compare two versions of a document clause by clause; returns the changes with their words and places."""
        from localctx.batch.compare.compare_file import compare_text
        from localctx.library.compare.compare_documents import compare_documents

        def job(session: Session) -> Generator[Any, Any, str]:
            yield from ()
            stored = session.store.documents
            versions = [stored.stored(stored.find(document).id) for document in (old, new)]
            return compare_text(compare_documents(*filter(None, versions)))

        return self._run(job)

    def list(self) -> str:
        """List the documents of the library: id, name, and number of characters."""

        def job(session: Session) -> Generator[Any, Any, str]:
            yield from ()
            rows = session.store.documents.by_file()
            return "\n".join(f"{row.id}  {row.name}  {row.chars:,}" for row in rows) or "The library is empty."

        return self._run(job)

    def read(self, document: DocumentId, start: int = 0, length: int = 10_000) -> str:
        """Read a document's text from character ``start`` on."""

        def job(session: Session) -> Generator[Any, Any, str]:
            yield from ()
            text = session.store.documents.text(session.store.documents.find(document).id)
            begin = max(0, start)
            end = min(len(text), begin + max(1, min(length, MAX_CHARACTERS)))
            rest = f"\n\n(characters {begin:,} to {end:,} of {len(text):,})" if end < len(text) or begin else ""
            return text[begin:end] + rest

        return self._run(job)

    def _run(self, work: Callable[[Session], Generator[Any, Any, str]]) -> str:
        """Run the coroutine that ``work`` returns in the worker. Returns the result of the coroutine."""
        from mcp.server.mcpserver.exceptions import ToolError

        results = list[str]()

        def job(session: Session) -> Generator[Any, Any, None]:
            results.append((yield from work(session)))

        try:
            for _ in self._worker.submit(job):
                pass
        except (UserError, Cancelled) as e:
            raise ToolError(str(e) or "it was stopped") from e
        return results[0]


def make_server(worker: EngineWorker) -> "MCPServer":
    """Returns the MCP server with all tools. Raises UsageError if the SDK is not installed."""
    try:
        from mcp.server import MCPServer
    except ImportError as e:
        raise UsageError("the MCP SDK is not installed", "pip install 'localctx[mcp]'") from e

    tools, server = LibraryTools(worker), MCPServer("localctx", instructions=INSTRUCTIONS, version=__version__)
    for tool in (tools.search, tools.ask, tools.table, tools.compare, tools.list, tools.read):
        server.add_tool(tool, structured_output=False)
    return server


def run_stdio(settings: Settings) -> None:
    """Serve the library of ``settings`` over standard input and output, until the input ends. Raises UsageError."""
    worker = EngineWorker(settings, "mcp")
    try:
        make_server(worker).run("stdio")
    finally:
        worker.close()


def _told(report: AnswerReport) -> str:
    nearest = [report.nearest] if report.nearest else []
    return report.answer + _listed("From", report.citations) + _listed(NEAREST, nearest)


def _listed(title: str, citations: Sequence[dict[str, Any]]) -> str:
    lines = [f"- [{c['document']}] {_place(c['name'], c['page'], c['heading'])}: {c['quote']}" for c in citations]
    return f"\n\n{title}:\n" + "\n".join(lines) if lines else ""


def _found_in(p: "Passage") -> str:
    place = _place(p.name, p.page, p.heading)
    return f"{place}, of an older version" if p.superseded else place


def _place(name: str, page: str | None, heading: str | None) -> str:
    return ", ".join(filter(None, [name, page and tell_part(page), heading]))
