"""Reads documents that are zip files (Office, OpenDocument, EPUB), within limits. Runs in the child process."""

import io
import zipfile
from collections.abc import Callable
from xml.etree import ElementTree

from localctx.errors import DocumentError

MAX_UNPACKED = 256 << 20
"""The largest number of bytes that all members of one document may unpack to together."""

_LOCKED = ("is locked with a password", "save a copy without one")
_DAMAGED_REMEDY = "get it again, or open it in its own program and save it again"
_KINDS = {"word/": "docx", "xl/": "xlsx", "ppt/": "pptx"}  # by the prefix of member names
_OPEN_DOCUMENT = {"text": "odt", "presentation": "odp", "spreadsheet": "ods"}


class Archive:
    """A zip file in memory that unpacks at most MAX_UNPACKED bytes in total."""

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as e:
            raise DocumentError("is a damaged zip, Office or EPUB file", _DAMAGED_REMEDY) from e
        self.names = set(self._zip.namelist())
        self._left = MAX_UNPACKED

    def read(self, name: str) -> bytes:
        """Returns the bytes of a member. Raises DocumentError if it is missing, encrypted or too large.

        Also raises the errors of zipfile for damaged data.
        """
        if name not in self.names:
            raise DocumentError(f"is damaged: {name[:80]} is not in it", _DAMAGED_REMEDY)
        if self._zip.getinfo(name).flag_bits & 1:
            raise DocumentError(*_LOCKED)
        with self._zip.open(name) as member:  # the size in its header may be wrong
            data = member.read(self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise DocumentError(
                f"unpacks to more than {MAX_UNPACKED >> 20} MiB", "split it into parts, or do not trust it"
            )
        return data

    def xml(self, name: str) -> ElementTree.Element:
        """Returns a member parsed as XML. expat refuses entity bombs. Raises DocumentError."""
        try:
            return ElementTree.fromstring(self.read(name))
        except ElementTree.ParseError as e:
            raise DocumentError(f"is damaged: {name[:80]} in it is not XML ({e})", _DAMAGED_REMEDY) from e

    def repacked(self, wanted: Callable[[str], bool] = lambda name: True) -> bytes:
        """Returns an uncompressed copy of the zip file, for a library that would unpack without a limit.

        Members for which ``wanted(name)`` is False, such as pictures, are empty in the copy. Raises DocumentError if
        the members unpack to more than MAX_UNPACKED bytes.
        """
        copy = io.BytesIO()
        with zipfile.ZipFile(copy, "w") as archive:
            for name in sorted(self.names):
                archive.writestr(name, self.read(name) if wanted(name) else b"")
        return copy.getvalue()

    def kind(self) -> str:
        """Returns the kind of document: ``docx``, ``xlsx``, ``pptx``, ``odt``, ``odp``, ``ods`` or ``epub``.

        Raises DocumentError for any other archive.
        """
        if "content.xml" in self.names:
            return self._open_document()
        if "META-INF/container.xml" in self.names:
            return "epub"
        for begins, kind in _KINDS.items():
            if any(name.startswith(begins) for name in self.names):
                return kind
        if any(name.endswith(".iwa") for name in self.names):
            raise DocumentError("is a file of Apple's Pages, Numbers or Keynote", "export it as PDF, Word or Excel")
        raise DocumentError("is a zip file", "unpack it and add the documents in it")

    def _open_document(self) -> str:
        manifest = "META-INF/manifest.xml"
        if manifest in self.names and b"encryption-data" in self.read(manifest):
            raise DocumentError(*_LOCKED)
        told = self.read("mimetype") if "mimetype" in self.names else b""
        name = told.decode("latin-1").strip().rpartition("opendocument.")[2].removesuffix("-template")
        if name not in _OPEN_DOCUMENT:
            raise DocumentError("is a damaged OpenDocument file, or has no text", "export it as PDF")
        return _OPEN_DOCUMENT[name]


def local(tag: str) -> str:
    """Returns an XML name without its namespace."""
    return tag.rpartition("}")[2]


def attribute(attributes: dict[str, str], name: str) -> str:
    """Returns the attribute ``name`` in any namespace, or "" if there is none."""
    return next((value for key, value in attributes.items() if local(key) == name), "")
