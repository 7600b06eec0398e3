"""``library``: adds, lists, shows and deletes documents."""

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import as_json_option, ocr_option, open_store, quiet_option, settings_from
from localctx.cli.library.library_pages import export, import_, pin, unpin, verify
from localctx.cli.library.library_trash import removed_line, trash
from localctx.cli.library.library_watch import watch
from localctx.cli.printing import print_error, print_line, print_text
from localctx.cli.sections import setting_option
from localctx.errors import INTERRUPTED, DocumentError, format_bytes
from localctx.file_names import stored_path

if TYPE_CHECKING:
    from localctx.library.add import Added

SOME_FAILED = 3


@click.group()
def library() -> None:
    """Manage the documents that were read, and their stored pages."""


@library.command("add")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@as_json_option
@quiet_option
@ocr_option
@setting_option("embedder")
def library_add(paths: tuple[str, ...], as_json: bool, quiet: bool, **flags: Any) -> None:
    """Read PATHs into the library: files, folders with all files below, patterns; - is standard input.

    Text, Markdown, HTML, PDF, Word, EPUB, presentations, spreadsheets, OpenDocument, e-mail, RTF, CSV and source code;
    they are then indexed for search. Exit code 3 if some could not be read; the others are stored, also after Ctrl-C.

    \b
    localctx library add report.pdf notes/ "books/*.epub"
    """
    from localctx.batch.jobs import IgnoredFile, told
    from localctx.cli.library.library_outdated import count_outdated
    from localctx.cli.terminal import Terminal, print_json
    from localctx.library.folders.find import find_documents
    from localctx.session import Session

    terminal, results, stopped = Terminal(as_json, quiet), list["Added"](), False
    ignored = list[IgnoredFile]()
    with (
        Session(settings_from(flags), terminal.show) as session,
        terminal.cleared(),
        session.workflows.library() as workflow,
    ):
        files = find_documents(paths, lambda path, why: ignored.append(IgnoredFile(stored_path(path), why)))
        try:
            for result in workflow.add(files):
                results.append(result)
                terminal.clear()
                _print_result(result, as_json)
            if why := workflow.index({r.id for r in results if r.id}):
                terminal.say(why)
            if told_outdated := count_outdated(session.store, [r.id for r in results if r.status == "new version"]):
                terminal.say(told_outdated)
        except KeyboardInterrupt:
            stopped = True
    for line in told(ignored):
        terminal.say(line)
    if as_json:
        print_json(
            {
                "documents": [vars(r) for r in results],
                "passed_over": [vars(file) for file in ignored],
                "stopped": stopped,
            }
        )
    if stopped:
        terminal.say("stopped; the documents that were added are kept")
        sys.exit(INTERRUPTED)
    if not results:
        raise DocumentError(f"no document in {', '.join(paths)}", "name files, or folders that have some")
    if any(r.status == "failed" for r in results):
        sys.exit(SOME_FAILED)


def _print_result(result: "Added", as_json: bool) -> None:
    from localctx.document_parts import count_parts

    if result.status == "failed":
        print_error(f"localctx: {result.why}")
    elif not as_json:
        pages = f"{count_parts(result.part, result.pages)}, " if result.pages else ""
        details = f"{pages}{result.characters:,} characters, {result.seconds:.1f} s"
        print_line(f"{result.path}: {result.status}, {details}")
        for line in result.unread:
            print_line(f"  not read: {line}")


@library.command("list")
@as_json_option
def library_list(as_json: bool) -> None:
    """List documents, the last used first. Files with the same text have a line each, and the same id.

    \b
    localctx library list --json
    """
    from localctx.cli.terminal import print_json, table

    with open_store() as store:
        listed = [(d, store.caches.of_document(d.id), store.caches.usage(d.id)) for d in store.documents.by_file()]
    if as_json:
        print_json([_document_json(d, caches, kept) for d, caches, kept in listed])
    elif not listed:
        print_line("The library is empty. Read documents with: localctx library add PATH...")
    else:
        print_text(
            table(
                [
                    {
                        "ID": d.id[:12],
                        "NAME": d.name,
                        "CHARACTERS": d.chars,
                        "PAGES": pages,
                        "ON DISK": format_bytes(nbytes),
                        "LAST USED": _when(d.used),
                        "NOTES": ", ".join(filter(None, ("pinned" * d.pinned, d.superseded and "older version"))),
                    }
                    for d, _, (pages, _, nbytes) in listed
                ]
            )
        )


@library.command("show")
@click.argument("document")
@as_json_option
def library_show(document: str, as_json: bool) -> None:
    """Show one DOCUMENT (an id, its beginning, a name or a path) and its stored caches.

    \b
    localctx library show README.md
    """
    from localctx.cli.terminal import print_json, table

    with open_store() as store:
        row = store.documents.find(document)
        caches, spans = store.caches.of_document(row.id), store.documents.spans(row.id)
        kept, files = store.caches.usage(row.id), [file.path for file in store.documents.files.of_document(row.id)]
    if as_json:
        print_json(_document_json(row, caches, kept) | {"spans": [vars(s) for s in spans], "files": files})
        return
    print_line(f"{row.name}  {row.chars:,} characters, {row.encoding}, {row.path}")
    for path in sorted({*files} - {row.path}):
        print_line(f"the same text as {path}")
    print_line(f"id {row.id}")
    pinned = ", pinned" if row.pinned else ""
    print_line(f"added {_when(row.added)}, last used {_when(row.used)}, {_parts(spans)}{pinned}")
    if row.superseded:
        print_line(f"an older version; the next is {row.superseded[:12]}")
    for line in row.unread_lines:
        print_line(f"not read: {line}")
    readings: dict[tuple[str, str], list[Any]] = {}  # caches by model and codec
    for c in caches:
        readings.setdefault((c.model, c.codec), []).append(c)
    rows = [
        {
            "MODEL": model,
            "KV": codec,
            "READINGS": len(some),
            "KEPT TOKENS": sum(c.kept for c in some),
            "STATE": "ready" if all(c.state == "ready" for c in some) else "partly read",
            "ON DISK": format_bytes(sum(c.bytes for c in some)),
            "LAST USED": _when(max(c.used for c in some)),
        }
        for (model, codec), some in readings.items()
    ]
    print_text(table(rows) or "it has no stored pages")


@library.command("rm")
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT...")
@click.option("--now", is_flag=True, help="Erase them at once, and overwrite their text.")
def library_rm(documents: tuple[str, ...], now: bool) -> None:
    """Delete DOCUMENTs from the library. Their pages are deleted at once; their text stays in the trash for 7 days.

    The path or name of one of several files with the same text removes only that file; their id removes all.

    \b
    localctx library rm README.md 3f9a1c
    """
    for document in documents:
        with open_store() as store:
            row = store.documents.find(document)
            if file := store.documents.files.one_of_several(row.id, document):
                store.documents.files.forget(file.path)
                others = ", ".join(other.path for other in store.documents.files.of_document(row.id))
                print_line(f"{file.path} removed; its text stays as {others}")
                continue
            print_line(removed_line(store, "document", row.id, row.name, now))
            if quoting := store.chats.quoting(row.id):
                ids = " ".join(chat.id for chat in quoting)
                print_line(f"chats that still quote it: {len(quoting)}; delete them with: localctx chats rm {ids}")


def _parts(spans: list[Any]) -> str:
    """Returns the number of pages or other parts, if any, and the number of headings."""
    from localctx.document_parts import count_parts, parts_of_kinds

    n = Counter(s.kind for s in spans)
    counted = [count_parts(kind, count) for kind, count in parts_of_kinds(n).items()]
    return ", ".join([*counted, f"{n['heading']:,} headings"])


def _document_json(row: Any, caches: list[Any], kept: tuple[int, int, int]) -> dict[str, Any]:
    listed = [
        {k: v for k, v in vars(c).items() if k != "fingerprint"} | {"fingerprint": c.fingerprint.hex()} for c in caches
    ]
    return {**vars(row), **dict(zip(("pages", "kept_tokens", "kept_bytes"), kept, strict=True)), "caches": listed}


def _when(seconds: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


for _command in (watch, pin, unpin, verify, export, import_, trash):
    library.add_command(_command)
