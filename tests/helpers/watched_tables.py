"""A running ``table --watch``: its changes as they come, and a fake server that answers about leases."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from process_lines import ProcessLines
from processes import opened

RENT, DATE = "How much is the rent?", "When does it begin?"
COLUMNS = ("--ask", f"rent (money): {RENT}", "--ask", f"begin (date): {DATE}")
LEASE = "This is lease {number}. The rent is {rent} a month. It begins on {day} May 2026. Pets may be kept.\n"
LIMIT = 300  # seconds that a step may take on a busy machine


def lease(folder: Path, name: str, rent: str = "EUR 1,200", day: int = 4, number: int | str = 0) -> Path:
    """Write a lease."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(LEASE.format(number=number, rent=rent, day=day))
    return path


def answer_about_leases(handler) -> None:
    """Answer as a model would, from the text of the prompt."""
    content = handler.server.asked[-1]["messages"][-1]["content"]
    found = re.search("The rent is (.*?) a month" if RENT in content else r"It begins on (.*?)\.", content)
    handler.stream(found[1] if found else "The document does not say.", len(content.split()))


class WatchedTable(ProcessLines):
    """A process that keeps a table current."""

    def wait_for(self, *wanted: tuple[str, str]) -> list[dict]:
        """The next changes, up to the last of those wanted: the news and the file's name."""
        left, changes = {*wanted}, list[dict]()
        while left:
            changes.append(self.next(LIMIT))
            left.discard((changes[-1]["news"], Path(changes[-1]["path"]).name))
        return changes


@contextmanager
def watched_table(folder: Path, out: Path, *how: object) -> Iterator[WatchedTable]:
    """A process that keeps the table ``out`` of the leases in ``folder`` current, and is killed at the end."""
    command = [sys.executable, "-m", "localctx", "table", folder, *COLUMNS, "-o", out, "--watch", "--json", *how]
    with opened([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield WatchedTable(process)
        finally:
            process.kill()
