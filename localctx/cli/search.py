"""``library search``: passages of the documents in the library."""

import re
import sys
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from localctx.cli.common import as_json_option, quiet_option, settings_of

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.library.search import Found, Passage
    from localctx.models.embed import Embedder
    from localctx.settings import Settings
    from localctx.store.store import Store


@click.command("search")
@click.argument("words")
@click.option("--document", "documents", multiple=True, metavar="D", help="Only in this one (id, name or path); again.")
@click.option("--top", type=click.IntRange(1, 1000), default=5, metavar="N", help="At most N passages (5).")
@click.option("--embedder", metavar="NAME", help="What makes vectors: all-minilm-l6-v2, none, a folder, a hub id.")
@as_json_option
@quiet_option
def library_search(
    words: str, documents: tuple[str, ...], top: int, embedder: str | None, as_json: bool, quiet: bool
) -> None:
    """Find passages about WORDS, the best first: by the words themselves, and by what they mean.

    What was not searched before is indexed first.

    \b
    localctx library search "how is a page named?" --document README.md
    """
    from localctx.cli.terminal import Terminal, print_json
    from localctx.store.store import Store, told

    settings, terminal = settings_of({"embedder": embedder}), Terminal(as_json, quiet)
    with terminal.cleared(), closing(Store(settings.home)) as store, told(settings.home):
        ids = [store.documents.find(d).id for d in documents] or None
        found = _found(store, settings, words, ids, top, terminal)
    if found.words_only:
        terminal.say(f"{found.words_only:,} of {found.chunks:,} passages were searched by their words alone")
    if as_json:
        print_json(asdict(found))
    elif found.passages:
        print("\n\n".join(_shown(p, words, sys.stdout.isatty()) for p in found.passages))
    else:
        terminal.say(f"nothing found in {found.chunks:,} passages" if found.chunks else "the library is empty")


def _found(
    store: "Store", settings: "Settings", words: str, ids: list[str] | None, top: int, terminal: "Terminal"
) -> "Found":
    """What is found, by words alone where the embedder cannot be had; a line says why."""
    from localctx.engine.events import Progress
    from localctx.library.search import index_all, search, with_vectors
    from localctx.models.embed import load_embedder

    def progress(phase: str, done: int, total: int) -> None:
        terminal.show(Progress(phase, done, total))

    def find(embedder: "Embedder | None") -> "Found":
        index_all(store, embedder, ids, progress)
        terminal.clear()
        return search(store, words, embedder, ids, top)

    found, why = with_vectors(lambda: load_embedder(settings.embedder, settings.models, progress), find)
    if why:
        terminal.say(why)
    return found


def _shown(p: "Passage", words: str, marked: bool) -> str:
    page, heading = p.page and f"page {p.page}", p.heading and f"“{p.heading}”"
    where = ", ".join(
        filter(None, [p.name, page, heading, f"characters {p.start:,}-{p.end:,}", f"score {p.score:.3f}"])
    )
    return f"{click.style(where, bold=True) if marked else where}\n{_mark(p.text, words) if marked else p.text}"


def _mark(text: str, words: str) -> str:
    """``text`` with the words of the query in colour, whatever their case."""
    terms = "|".join(map(re.escape, re.findall(r"\w+", words)))
    return (
        re.sub(rf"\b(?:{terms})\b", lambda m: click.style(m.group(), fg="yellow"), text, flags=re.I) if terms else text
    )
