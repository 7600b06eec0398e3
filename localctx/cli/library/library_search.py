"""``library search``: finds passages in the documents of the library."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from localctx.cli.common import as_json_option, quiet_option, settings_from
from localctx.cli.printing import print_marked
from localctx.cli.sections import setting_option

if TYPE_CHECKING:
    from localctx.library.search.search import Passage


@click.command("search")
@click.argument("words")
@click.option(
    "--document",
    "documents",
    multiple=True,
    metavar="D",
    help="Search only this document (id, name or path); may be repeated.",
)
@click.option("--top", type=click.IntRange(1, 1000), default=5, metavar="N", help="At most N passages (5).")
@setting_option("embedder")
@as_json_option
@quiet_option
def library_search(
    words: str, documents: tuple[str, ...], top: int, embedder: str | None, as_json: bool, quiet: bool
) -> None:
    """Find passages about WORDS, the best first: by the words themselves, and by their meaning.

    New documents are indexed first. Passages of older versions come last, and are marked.

    \b
    localctx library search "how is a page named?" --document README.md
    """
    from localctx.cli.terminal import Terminal, print_json
    from localctx.library.search.search import query_pattern
    from localctx.session import Session

    terminal = Terminal(as_json, quiet)
    with Session(settings_from({"embedder": embedder}), terminal.show) as session, terminal.cleared():
        ids = [session.store.documents.find(d).id for d in documents] or None
        with session.workflows.library() as workflow:
            found, why = workflow.search(words, ids, top)
    if why:
        terminal.say(why)
    if found.words_only:
        terminal.say(f"{found.words_only:,} of {found.chunks:,} passages were searched by their words alone")
    if as_json:
        print_json(asdict(found))
    elif found.passages:
        for passage in found.passages:
            blank = "" if passage is found.passages[-1] else "\n"  # between two passages
            print_marked(_place(passage), passage.text + blank, query_pattern(words))
    else:
        terminal.say(f"nothing found in {found.chunks:,} passages" if found.chunks else "the library is empty")


def _place(p: "Passage") -> str:
    from localctx.document_parts import tell_part

    page, heading = p.page and tell_part(p.page), p.heading and f"“{p.heading}”"
    older = "older version" if p.superseded else ""
    places = [p.name, older, page, heading, f"characters {p.start:,}-{p.end:,}", f"score {p.score:.3f}"]
    return ", ".join(filter(None, places))
