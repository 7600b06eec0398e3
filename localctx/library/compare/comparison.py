"""The result of comparing two versions of a document: the clauses that changed, with their places and words."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from localctx.document_parts import tell_part

ChangeState = Literal["changed", "inserted", "deleted", "moved"]
Meaning = Literal["number", "date", "name", "obligation", "wording"]

MEANINGS: dict[Meaning, str] = {
    "number": "Numbers and money",
    "date": "Dates",
    "name": "Names",
    "obligation": "Obligations",
    "wording": "Other wording",
}
"""The kinds of changed words with their titles, the most important first."""

STATES = {"inserted": "Inserted", "deleted": "Deleted", "moved": "Moved"}
NO_CHANGE = "No clause has changed."


@dataclass(frozen=True)
class WordChange:
    """The words ``old`` that became the words ``new``; ``old`` is "" if words were only added, and ``new`` is "" if
    words were only removed. ``meaning`` says what the words are about: a number, a date, a name, an obligation, or
    other wording.
    """

    old: str
    new: str
    meaning: Meaning

    @property
    def line(self) -> str:
        """The change in one line, such as ``1,200 -> 1,300``."""
        if self.old and self.new:
            return f"{self.old} -> {self.new}"
        return f"added: {self.new}" if self.new else f"removed: {self.old}"


@dataclass(frozen=True)
class ClauseVersion:
    """A clause in one of the two versions: the characters ``start..end`` of the document's text, which are ``text``.

    ``page`` is the label of the clause's page, or a name such as ``slide 3`` or ``row 12``. ``heading`` is the heading
    above the clause. If both are None, ``paragraph`` says where the clause is: the number of its line, not counting
    empty lines.
    ``number`` is the clause's own number, or "".
    """

    text: str
    page: str | None
    heading: str | None
    paragraph: int
    number: str
    start: int
    end: int

    @property
    def place(self) -> str:
        """The place of the clause in words, such as ``page 2, under "Rent"``."""
        page, heading = self.page and tell_part(self.page), self.heading and f'under "{self.heading}"'
        return ", ".join(filter(None, (page, heading))) or f"paragraph {self.paragraph:,}"


@dataclass(frozen=True)
class ClauseChange:
    """A clause that is different in the new version.

    ``state`` is ``changed`` (``words`` has the differences), ``inserted``, ``deleted``, or ``moved`` with the same
    words. ``moved`` is True also for a changed clause that has another place. ``meaning`` says what its most important
    changed words are about; it is None unless the clause is changed.
    """

    state: ChangeState
    old: ClauseVersion | None
    new: ClauseVersion | None
    words: tuple[WordChange, ...] = ()
    meaning: Meaning | None = None
    moved: bool = False

    @property
    def title(self) -> str:
        """The title of the group under which this change is shown."""
        return MEANINGS[self.meaning] if self.meaning else STATES[self.state]

    @property
    def versions(self) -> Iterator[tuple[str, ClauseVersion]]:
        """The one or two versions that have the clause, as pairs of ``old`` or ``new`` and the ClauseVersion."""
        return ((name, version) for name, version in (("old", self.old), ("new", self.new)) if version)

    @property
    def lines(self) -> tuple[str, ...]:
        """The changed words of the clause, one change a line."""
        return tuple(word.line for word in self.words)


@dataclass(frozen=True)
class ComparedFile:
    """One of the two versions of a document: its id, name and path, and the number of its clauses. ``page_lines`` are
    the header and footer of its pages, which are not compared. ``unread`` are its parts that could not be read.
    """

    document: str
    name: str
    path: str
    clauses: int
    page_lines: tuple[str, ...]
    unread: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """The changes from the version ``old`` to the version ``new``. Changed clauses come first, by meaning, then
    inserted, deleted and moved clauses.

    ``renumbered`` has the (old, new) numbers of clauses of which only the number changed. ``references`` is the number
    of mentions of these numbers that changed with them. ``equal`` is the number of clauses with the same words.
    """

    old: ComparedFile
    new: ComparedFile
    changes: tuple[ClauseChange, ...]
    renumbered: tuple[tuple[str, str], ...]
    references: int
    equal: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the whole comparison for the user, one a line."""
        return tuple(filter(None, (self._numbers_line, self._likeness_line, *self._left_out)))

    @property
    def summary(self) -> str:
        """The number of changes in one line, or NO_CHANGE."""
        if not self.changes:
            return NO_CHANGE
        titles = [change.title.lower() for change in self.changes]
        counts = ", ".join(f"{title} {titles.count(title):,}" for title in dict.fromkeys(titles))
        return f"{len(titles):,} {'change' if len(titles) == 1 else 'changes'} ({counts})"

    @property
    def groups(self) -> dict[str, list[ClauseChange]]:
        """The changes under the title of their group, in the order of the groups."""
        titles = dict.fromkeys(change.title for change in self.changes)
        return {title: [change for change in self.changes if change.title == title] for title in titles}

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return {**asdict(self), "same": not self.changes, "notes": list(self.notes)}

    @property
    def _numbers_line(self) -> str:
        if not self.renumbered:
            return ""
        shown = ", ".join(f"{a or 'none'} -> {b or 'none'}" for a, b in self.renumbered[:3])
        more = ", ..." if len(self.renumbered) > 3 else ""
        count = f"{len(self.renumbered):,} clause{'s have' if len(self.renumbered) > 1 else ' has'} another number"
        mentions = f"; {self.references:,} reference{'s' * (self.references > 1)} to them changed with it"
        return f"{count} ({shown}{more}){mentions * bool(self.references)}."

    @property
    def _likeness_line(self) -> str:
        least = min(self.old.clauses, self.new.clauses)
        return "" if 4 * self.equal >= least or least < 8 else "Few clauses are the same: are these two versions?"

    @property
    def _left_out(self) -> Iterator[str]:
        for file in (self.old, self.new):
            yield from (f"Header or footer of pages, not compared, in {file.name}: {line}" for line in file.page_lines)
            yield from (f"Not read, so not compared, in {file.name}: {line}" for line in file.unread)
