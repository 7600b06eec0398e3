"""Reads documents that are zip files (Word, EPUB), within limits. Runs in the child process."""

import io
import zipfile
from xml.etree import ElementTree

from localctx.errors import DocumentError

MAX_UNPACKED = 256 << 20
"""Limit on the bytes unpacked from one document, all members together."""

_DAMAGED_REMEDY = "get it again, or open it in its own program and save it anew"
_OTHERS = {
    "xl/": ("is a spreadsheet", "save each sheet as CSV"),
    "ppt/": ("is a presentation", "save it as PDF"),
    "content.xml": ("is an OpenDocument file", "save it as .docx or PDF"),
}


class Archive:
    """A zip file in memory that unpacks at most MAX_UNPACKED bytes, all members together."""

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as e:
            raise DocumentError("is a damaged zip, Word or EPUB file", _DAMAGED_REMEDY) from e
        self.names = set(self._zip.namelist())
        self._left = MAX_UNPACKED

    def read(self, name: str) -> bytes:
        """Returns a member's bytes. Raises DocumentError when it is missing, encrypted or too large, and what zipfile
        raises for damaged data.
        """
        if name not in self.names:
            raise DocumentError(f"is damaged: {name[:80]} is missing in it", _DAMAGED_REMEDY)
        if self._zip.getinfo(name).flag_bits & 1:
            raise DocumentError("is locked with a password", "save a copy without one")
        with self._zip.open(name) as member:  # the size in its header may be wrong
            data = member.read(self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise DocumentError(
                f"unpacks to more than {MAX_UNPACKED >> 20} MiB", "do not trust it; split it if it is yours"
            )
        return data

    def xml(self, name: str) -> ElementTree.Element:
        """Returns a member parsed as XML. expat refuses entity bombs. Raises DocumentError."""
        try:
            return ElementTree.fromstring(self.read(name))
        except ElementTree.ParseError as e:
            raise DocumentError(f"is damaged: {name[:80]} in it is not XML ({e})", _DAMAGED_REMEDY) from e

    def kind(self) -> str:
        """Returns ``docx`` or ``epub``. Raises DocumentError for every other archive."""
        if "META-INF/container.xml" in self.names and "content.xml" not in self.names:
            return "epub"
        if any(name.startswith("word/") for name in self.names):
            return "docx"
        for begins, (problem, remedy) in _OTHERS.items():
            if any(name.startswith(begins) for name in self.names):
                raise DocumentError(problem, remedy)
        raise DocumentError("is a zip file", "unpack it and add the documents in it")


def local(tag: str) -> str:
    """Returns an XML name without its namespace."""
    return tag.rpartition("}")[2]


def attribute(attributes: dict[str, str], name: str) -> str:
    """Returns the attribute called ``name`` in any namespace; empty text where there is none."""
    return next((value for key, value in attributes.items() if local(key) == name), "")
