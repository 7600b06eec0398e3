"""Footnotes, endnotes and comments of a Word document, numbered in the order in which they are called."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from localctx.library.parsers.list_numbers import formatted
from localctx.library.parsers.office.blocks import Block, labelled
from localctx.library.parsers.office.xml_tree import Element, attribute, child, children, descendants, local, number

_KINDS = {"footnote": "decimal", "endnote": "lowerRoman", "comment": ""}  # and how Word numbers them by default
_RULES = ("separator", "continuationSeparator", "continuationNotice")  # lines between text and notes

Reader = Callable[[Element], Iterable[Block]]


@dataclass
class _Numbering:
    form: str
    start: int = 1
    in_sections: bool = False
    count: int = 0  # of the notes called so far


class DocxNotes:
    """The notes of a document. ``properties`` are what may say how they are numbered: settings and sections."""

    def __init__(self, properties: Iterable[Element]) -> None:
        self._notes: dict[tuple[str, str], tuple[Element, Reader]] = {}
        self._told: set[tuple[str, str]] = set()  # called, or left out with the text that calls them
        self._numbering = {kind: _Numbering(form) for kind, form in _KINDS.items()}
        for one in properties:
            for kind, numbering in self._numbering.items():
                _configure(numbering, child(one, f"{kind}Pr"))

    def add(self, kind: str, root: Element, reader: Reader) -> None:
        """Add the notes of a kind: ``root`` holds them, and ``reader`` reads one."""
        for note in children(root, kind):
            if attribute(note, "type") not in _RULES:
                self._notes[kind, attribute(note, "id")] = note, reader

    def called(self, reference: Element) -> list[Block]:
        """Returns the blocks of the note that ``reference`` calls, with what it is called before the first one."""
        kind = local(reference).removesuffix("Reference")
        key = kind, attribute(reference, "id")
        own_mark = attribute(reference, "customMarkFollows") in ("1", "true", "on")  # typed into the text
        label = f"{kind.title()}{'' if own_mark or kind == 'comment' else ' ' + self._next(kind)}"
        if key in self._told or key not in self._notes:
            return []
        self._told.add(key)
        note, reader = self._notes[key]
        author = attribute(note, "author").strip()
        return labelled(f"{label} by {author}" if author else label, reader(note))

    def skip(self, element: Element) -> None:
        """Remember the notes that are called in text that is left out."""
        for one in descendants(element, "footnoteReference", "endnoteReference", "commentReference"):
            self._told.add((local(one).removesuffix("Reference"), attribute(one, "id")))

    def begin_section(self) -> None:
        """Restart the numbers of notes that are numbered in each section."""
        for numbering in self._numbering.values():
            numbering.count = 0 if numbering.in_sections else numbering.count

    def uncalled(self) -> Iterator[Block]:
        """Yields the blocks of notes that no text calls."""
        for key, (note, reader) in self._notes.items():
            if key not in self._told:
                self._told.add(key)
                yield from reader(note)

    def _next(self, kind: str) -> str:
        numbering = self._numbering[kind]
        numbering.count += 1
        return formatted(numbering.start + numbering.count - 1, numbering.form)


def _configure(numbering: _Numbering, properties: Element | None) -> None:
    if (form := child(properties, "numFmt")) is not None:
        numbering.form = attribute(form, "val")
    if (start := child(properties, "numStart")) is not None:
        numbering.start = number(attribute(start, "val"), 1)
    if (restart := child(properties, "numRestart")) is not None:
        numbering.in_sections = attribute(restart, "val") == "eachSect"
