"""``library outdated``: lists stored answers and summaries that a newer version of their document contradicts."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from localctx.cli.common import as_json_option, quiet_option, settings_from
from localctx.cli.printing import print_text

if TYPE_CHECKING:
    from localctx.library.compare.outdated import OutdatedText
    from localctx.store.store import Store

_MOST_CHARACTERS = 200  # of a stored text


@click.command("outdated")
@click.argument("documents", nargs=-1, metavar="[DOCUMENT]...")
@as_json_option
@quiet_option
def library_outdated(documents: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """List answers, table cells and summaries that rest on text which a newer version of their document changed.

    Each comes with the change, such as 1,200 -> 1,300 (page 2). DOCUMENTs (ids, names or paths) limit the list to their
    older versions. No model is used, and nothing is changed: ask again to get the new answer.

    \b
    localctx library outdated lease.pdf
    """
    from localctx.cli.terminal import Terminal, print_json
    from localctx.session import Session

    terminal = Terminal(as_json, quiet)
    with Session(settings_from({}), terminal.show) as session, terminal.cleared():
        found = find_outdated(session.store, documents)
    if as_json:
        print_json({"outdated": [text.to_json() for text in found]})
    elif found:
        print_text("\n\n".join(map(_told, found)))
    else:
        terminal.say("nothing is outdated: no stored answer or summary rests on text that has changed since")


def find_outdated(store: "Store", documents: Sequence[str] = ()) -> "list[OutdatedText]":
    """Returns the stored texts that are outdated and rest on older versions of ``documents`` (ids, names or paths).
    Without ``documents``, returns all outdated texts. Raises DocumentError for a document that does not exist.
    """
    from localctx.library.compare.outdated import older_versions, outdated_texts

    found = [store.documents.find(document).id for document in documents]
    return list(outdated_texts(store, [*found, *older_versions(store, found)] if found else None))


def count_outdated(store: "Store", newest: Collection[str]) -> str:
    """Returns a line that counts outdated stored answers and summaries, or "" if there are none. They rest on older
    versions of the documents ``newest`` (ids), and on sentences that have changed.
    """
    from localctx.library.compare.outdated import older_versions, outdated_texts

    count = sum(1 for _ in outdated_texts(store, older_versions(store, newest)))
    texts = "stored answers and summaries no longer hold" if count > 1 else "stored answer or summary no longer holds"
    return f"{count:,} {texts}; `localctx library outdated` lists them" if count else ""


def _told(text: "OutdatedText") -> str:
    where = {"chat": f"chat {text.chat}", "answer": "table or summary", "summary": "summary"}[text.kind]
    stored = " ".join(text.text.split())
    stored = stored if len(stored) <= _MOST_CHARACTERS else f"{stored[:_MOST_CHARACTERS].rstrip()} ..."
    said = f"{text.question} {stored}" if text.question else stored
    return "\n".join([f"{text.name}, {where}: {said}", *(f"  no longer holds: {line}" for line in text.lines)])
