"""Jobs of the library page: imports an exported document, and describes the result of reading a document ahead."""

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localctx.engine.events import Note
from localctx.errors import DocumentError, TooLong, format_bytes
from localctx.store.bundle import open_bundle

if TYPE_CHECKING:
    from localctx.session import Session


def import_bundle(session: "Session", file: Path) -> Generator[Note, None, None]:
    """Import an exported document. If the current model cannot use the pages, only the text is imported.

    Yields a Note with the result.
    """
    bundle, why = open_bundle(file), ""
    with session.workflows.library() as workflow:
        try:
            usable = workflow.usable_caches(bundle)
        except TooLong as e:
            usable, why = [], e.problem
        try:
            checked = workflow.check_bundle(bundle, usable)
        except DocumentError as e:
            usable, why = [], e.problem
        workflow.import_bundle(bundle, usable)
    if bundle.caches and not usable:
        why = why or f"it was read by {bundle.made_by}, not by {session.settings.model}"
        yield Note(f"{bundle.row.name} imported, but not read yet: {why}. “Read now” reads it with this model.")
    else:
        yield Note(f"{bundle.row.name} imported, and already read ({checked})")


def prepared_line(r: dict[str, Any]) -> str:
    """Returns a line for the user about a document that was read ahead, from the report ``r``.

    The line says how much of the document is stored, the size in bytes, and the time of prefill.
    """
    tokens, kept = r["tokens"], r["kept"]
    share = f"{100 * kept['tokens'] / tokens['prompt']:.0f} %" if tokens["prompt"] else "nothing"
    text = f"{r['name']}: {share} is read and kept ({format_bytes(kept['bytes'])})"
    return f"{text}, {r['seconds']['prefill']:.1f} s. Answers start at once."
