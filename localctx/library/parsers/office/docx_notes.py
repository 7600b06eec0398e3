"""Numbers and reads the footnotes, endnotes and comments of a Word document, in the order of their references."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from localctx.library.parsers.list_numbers import formatted
from localctx.library.parsers.office.blocks import Block, comment_label, labelled
from localctx.library.parsers.office.xml_tree import Element, attribute, child, children, descendants, local, number

_KINDS = {"footnote": "decimal", "endnote": "lowerRoman", "comment": ""}  # how Word numbers the notes of a kind
_RULES = ("separator", "continuationSeparator", "continuationNotice")  # lines between text and notes

Reader = Callable[[Element], Iterable[Block]]


@dataclass
class _Numbering:
    form: str
    start: int = 1
    in_sections: bool = False
    count: int = 0  # of the notes that were referred to so far


class DocxNotes:
    """The footnotes, endnotes and comments of a Word document. ``properties`` are the settings and sections, which say
    how notes are numbered.
    """

    def __init__(self, properties: Iterable[Element]) -> None:
        self._notes: dict[tuple[str, str], tuple[Element, Reader]] = {}
        self._told: set[tuple[str, str]] = set()  # referred to, or left out with the text that refers to them
        self._numbering = {kind: _Numbering(form) for kind, form in _KINDS.items()}
        for one in properties:
            for kind, numbering in self._numbering.items():
                _configure(numbering, child(one, f"{kind}Pr"))

    def add(self, kind: str, root: Element, reader: Reader) -> None:
        """Add the notes of one ``kind`` (``footnote``, ``endnote`` or ``comment``), which are below the element
        ``root``.

        ``reader`` is a function that returns the blocks of one note.
        """
        for note in children(root, kind):
            if attribute(note, "type") not in _RULES:
                self._notes[kind, attribute(note, "id")] = note, reader

    def called(self, reference: Element) -> list[Block]:
        """Returns the blocks of the note that the element ``reference`` in the text refers to, after a label such as
        ``Footnote 3:``.

        Returns [] if the note is missing, was returned before, or was marked by ``skip``.
        """
        kind = local(reference).removesuffix("Reference")
        key = kind, attribute(reference, "id")
        own_mark = attribute(reference, "customMarkFollows") in ("1", "true", "on")  # typed into the text
        number = "" if own_mark or kind == "comment" else f" {self._next(kind)}"
        if key in self._told or key not in self._notes:
            return []
        self._told.add(key)
        note, reader = self._notes[key]
        label = comment_label(attribute(note, "author")) if kind == "comment" else f"{kind.title()}{number}"
        return labelled(label, reader(note))

    def skip(self, element: Element) -> None:
        """Mark the notes that ``element`` refers to. ``element`` is left out of the text, so its notes are left out,
        too.
        """
        for one in descendants(element, "footnoteReference", "endnoteReference", "commentReference"):
            self._told.add((local(one).removesuffix("Reference"), attribute(one, "id")))

    def begin_section(self) -> None:
        """Start a new section: notes that are numbered by section count from the beginning again."""
        for numbering in self._numbering.values():
            numbering.count = 0 if numbering.in_sections else numbering.count

    def uncalled(self) -> Iterator[Block]:
        """Yields the blocks of notes to which nothing in the text refers."""
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
