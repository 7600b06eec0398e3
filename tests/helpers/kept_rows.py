"""What a data folder has kept: the rows of its pages and snapshots, and damage to their bytes."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from localctx.store.pages.page_reader import SELECT_PAGES
from localctx.store.store import Store


def rows(home: Path) -> tuple[list[dict], list[dict]]:
    """The rows of all pages, and those of all snapshots, as they were written."""
    with closing(Store(home)) as store:
        stored = list(store.db.query(f"{SELECT_PAGES} ORDER BY pages.rowid"))
    return [r for r in stored if r["tokens"]], [r for r in stored if not r["tokens"]]


def damage(home: Path, rows: Iterable[dict]) -> None:
    """Flip a bit of each."""
    for row in rows:
        with (home / "pages" / f"{row['segment']}.kv").open("r+b") as file:
            file.seek(row["slot"] * row["slot_bytes"] + 5)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 16]))
