"""Reads the parts of a Word or PowerPoint file and the relations between them. Notes parts that cannot be read."""

import posixpath
import zipfile
import zlib
from typing import NamedTuple
from urllib.parse import unquote

from localctx.errors import DocumentError
from localctx.library.parsers.archive import Archive
from localctx.library.parsers.office.xml_tree import Element, attribute, descendants, parse_xml
from localctx.library.parsers.text_builder import TextBuilder

REMEDY = "open it in its own program and save it again"


class Relation(NamedTuple):
    """A part that another part refers to: its ``type``, such as ``footnotes``, and its path in the file."""

    type: str
    part: str


class Package:
    """Reads the XML parts of an Office file. Notes in ``builder`` the parts that cannot be read."""

    def __init__(self, archive: Archive, builder: TextBuilder) -> None:
        self.builder = builder
        self._archive = archive
        self._parts = {name.lower(): name for name in archive.names}
        self._relations: dict[str, dict[str, Relation]] = {}

    def main(self, usual: str) -> str:
        """Returns the path of the part with the document's text. The file usually names it; otherwise it is the path
        ``usual``.

        Raises DocumentError if there is no part at that path either.
        """
        found = [part for part in self.related("", "officeDocument") if self.has(part)]
        if not found and not self.has(usual):
            raise DocumentError("is damaged: it does not say where its text is", REMEDY)
        return found[0] if found else usual

    def tree(self, part: str, told: str) -> Element | None:
        """Returns the XML of a part. If the part is damaged, returns the readable rest of it, or None.

        If the part is missing or damaged, a note is made, in which ``told`` names it. Raises DocumentError if the file
        unpacks to too much, is locked, or declares entities.
        """
        try:
            data = self._archive.read(self._parts.get(part.lower(), part))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
            data = b""
        except DocumentError:
            if part.lower() in self._parts:
                raise
            data = b""
        root, whole = parse_xml(data)
        if root is None or (not whole and not len(root)):
            self.builder.note_unread(told)
        elif not whole:
            self.builder.note_unread(f"some of {told} (it is damaged)")
        return root

    def has(self, part: str) -> bool:
        """Returns True if the file has this part."""
        return part.lower() in self._parts

    def relations(self, part: str) -> dict[str, Relation]:
        """Returns the parts that ``part`` refers to, by the id of the relation.

        A ``part`` of "" stands for the file itself. References to things outside of the file are left out.
        """
        if part not in self._relations:
            folder, _, name = part.rpartition("/")
            listed = posixpath.join(folder, "_rels", f"{name}.rels")
            root = self.tree(listed, f"the list of the parts of {name or 'the file'}") if self.has(listed) else None
            self._relations[part] = {
                attribute(one, "Id"): Relation(
                    attribute(one, "Type").rpartition("/")[2], _resolved(folder, attribute(one, "Target"))
                )
                for one in descendants(root, "Relationship")
                if attribute(one, "TargetMode") != "External"
            }
        return self._relations[part]

    def related(self, part: str, kind: str) -> list[str]:
        """Returns the paths of the parts of a ``kind``, such as ``comments``, to which ``part`` refers."""
        return [relation.part for relation in self.relations(part).values() if relation.type == kind]

    def note_rest(self, pictures: str) -> None:
        """Note at the end which pictures have no description, and macros if there are any.

        ``pictures`` says how many such pictures there are, or where; "" means none.
        """
        if pictures:
            self.builder.note_unread(pictures)
        if any(name.endswith("vbaproject.bin") for name in self._parts):
            self.builder.note_unread("the macros, which are programs")


def _resolved(folder: str, target: str) -> str:
    path = target if target.startswith("/") else posixpath.join("/", folder, target)
    return unquote(posixpath.normpath(path)).lstrip("/")
