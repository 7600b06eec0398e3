"""Reads the parts of an .xlsx file that its sheets share: names, texts and formats. Runs in the child process."""

import io
import posixpath
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree

from localctx.library.parsers.archive import Archive, attribute, local
from localctx.library.parsers.sheets.number_format import BUILT_IN

_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_SHEET, _STRINGS, _STYLES = "worksheet", "sharedStrings", "styles"


class SheetEntry(NamedTuple):
    """A sheet of a workbook: its name, the path of the part with its rows, and whether it is hidden or a chart."""

    name: str
    part: str
    hidden: bool
    is_chart: bool


@dataclass(frozen=True)
class Workbook:
    """The sheets of a workbook, the texts that cells refer to by index, and the format codes of cell styles.

    Days count from 1904 if ``from_1904``, else from 1900.
    """

    sheets: list[SheetEntry]
    strings: list[str]
    formats: list[str]
    from_1904: bool


def read_workbook(archive: Archive) -> Workbook:
    """Returns the shared parts of an .xlsx file. Raises DocumentError if they are missing or not XML."""
    main = next((part for kind, part in relations(archive, "") if kind == "officeDocument"), "xl/workbook.xml")
    parts = dict(relations(archive, main))
    root = archive.xml(main)
    strings, styles = parts.get(_STRINGS, ""), parts.get(_STYLES, "")
    return Workbook(
        _sheets(root, archive, main),
        [text_of(item) for item in elements(archive.read(strings), ("si",))] if strings in archive.names else [],
        _formats(archive.xml(styles)) if styles in archive.names else [],
        any(attribute(e.attrib, "date1904") in ("1", "true") for e in root if local(e.tag) == "workbookPr"),
    )


def relations(archive: Archive, part: str) -> list[tuple[str, str]]:
    """Returns (kind, path) of each part to which ``part`` refers; a ``part`` of ``""`` stands for the whole file."""
    return [(kind, target) for _, kind, target in _relations(archive, part)]


def elements(data: bytes, names: Collection[str]) -> Iterator[ElementTree.Element]:
    """Yields the elements of an XML part whose local names are in ``names``.

    An element is valid until the next one is taken. Raises ParseError where the XML is damaged.
    """
    parents = list[ElementTree.Element]()
    for event, element in ElementTree.iterparse(io.BytesIO(data), ("start", "end")):
        if event == "start":
            parents.append(element)
            continue
        parents.pop()
        if local(element.tag) in names:
            yield element
            if parents:
                parents[-1].clear()


def text_of(element: ElementTree.Element) -> str:
    """Returns the text of a cell or comment, without phonetic readings of Japanese texts."""
    runs = (e for e in element if local(e.tag) in ("t", "r"))
    return unescaped("".join(t.text or "" for run in runs for t in run.iter() if local(t.tag) == "t"))


def unescaped(text: str) -> str:
    """Returns a text of a workbook with its escapes (``_x000D_``) as the characters that they stand for."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def _relations(archive: Archive, part: str) -> list[tuple[str, str, str]]:
    folder, name = posixpath.split(part)
    about = posixpath.join(folder, "_rels", f"{name}.rels")
    if about not in archive.names:
        return []
    members = {member.lower(): member for member in archive.names}  # programs write this name with different capitals
    found = list[tuple[str, str, str]]()
    for element in archive.xml(about):
        target = posixpath.join("/", folder, unquote(element.get("Target", "")))
        path = posixpath.normpath(target).lstrip("/")
        kind = element.get("Type", "").rpartition("/")[2]
        found.append((attribute(element.attrib, "Id"), kind, members.get(path.lower(), path)))
    return found


def _sheets(root: ElementTree.Element, archive: Archive, main: str) -> list[SheetEntry]:
    known = {id: (kind, target) for id, kind, target in _relations(archive, main)}
    found = list[SheetEntry]()
    for element in (e for e in root.iter() if local(e.tag) == "sheet"):
        kind, part = known.get(attribute(element.attrib, "id"), ("", ""))
        hidden = element.get("state", "visible") != "visible"
        found.append(SheetEntry(element.get("name", ""), part, hidden, kind == "chartsheet"))
    return found


def _formats(root: ElementTree.Element) -> list[str]:
    """Returns the format code of each cell style."""
    own = {e.get("numFmtId", ""): e.get("formatCode", "") for e in root.iter() if local(e.tag) == "numFmt"}
    styles = next((e for e in root if local(e.tag) == "cellXfs"), ())
    numbers = (style.get("numFmtId", "0") for style in styles)
    return [own.get(n) or BUILT_IN.get(int(n) if n.isdigit() else 0, "General") for n in numbers]
