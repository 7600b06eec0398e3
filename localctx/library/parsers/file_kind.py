"""Decides the kind of a file by its content. The name counts only if the content does not decide."""

import re
from pathlib import Path

from localctx.errors import DocumentError

_OLE = b"\xd0\xcf\x11\xe0"
_LOCKED = ("is locked with a password", "save a copy without one")
_STREAMS: dict[str, str | tuple[str, str]] = {
    "EncryptedPackage": _LOCKED,
    "WordDocument": "doc",
    "PowerPoint Document": "ppt",
    "__properties_version1.0": ("is an Outlook message", "save it as .eml"),
    "Workbook": "xls",
    "Book": "xls",
}
"""Names of streams in Office files from before 2007, with the kind of file, or the reason why it is not read."""

_OTHERS = {
    **dict.fromkeys(
        (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*"),
        ("is a picture", "pictures cannot be read yet; a PDF of it can, where OCR is installed"),
    ),
    b"\x1f\x8b": ("is compressed", "unpack it first"),
}
_FIELD = rb"[A-Za-z][\w-]*:[^\n]*\n(?:[ \t][^\n]*\n)*"  # a header field of a message, with its continuation lines
_HEAD = re.compile(rb"(?:%b){2,200}" % _FIELD)
_MBOX = re.compile(rb"From [^\n]*\d\d:\d\d[^\n]*\n(?:>?From [^\n]*\n)?%b" % _FIELD)
_SENDER = re.compile(rb"^From:", re.IGNORECASE | re.MULTILINE)
_COMMENT = r"<!--(?:(?!-->).)*-->"  # exactly one comment, or a text of many would backtrack without end
_HTML = re.compile(
    rf"\s*(<\?xml[^>]*>\s*|{_COMMENT}\s*)*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_TAG = re.compile(r"<[a-zA-Z/!]")
_SUBTITLES = re.compile(r"WEBVTT\b|\s*(?:\d+[ \t]*\n)?[ \t]*(?:\d+:)?\d\d:\d\d[,.]\d{1,3}[ \t]*-->[ \t]*[\d:]+[,.]\d")
_LATEX = re.compile(r"(?:\s|%.*\n)*\\(?:documentclass|documentstyle)\b")
_SENT = re.compile(rb"^(?:Date|Message-ID|Received|MIME-Version):", re.IGNORECASE | re.MULTILINE)


def kind_of(data: bytes, name: str) -> str:
    """Returns the kind of the file ``data``: ``pdf``, ``zip``, ``doc``, ``ppt``, ``xls``, ``rtf``, ``eml`` or ``mbox``,
    or "" if it may be text. ``name`` is the file's name.

    Raises DocumentError for formats that are not read. The message does not name the file.
    """
    head = data[:1024]
    if head.lstrip().startswith(b"%PDF-") or (b"%PDF-" in head and b"%%EOF" in data[-1024:]):
        return "pdf"
    if data.startswith((b"PK\3\4", b"PK\5\6")):
        return "zip"
    if data.startswith(b"{\\rtf"):
        return "rtf"
    if data.startswith(_OLE):
        return _old_office(data)
    for magic, error in _OTHERS.items():
        if data.startswith(magic):
            raise DocumentError(*error)
    return _mail(data[: 1 << 16].removeprefix(b"\xef\xbb\xbf").lstrip().replace(b"\r\n", b"\n"), name)


def text_kind(text: str, name: str) -> str:
    """Returns the kind of a text file: ``html``, ``ipynb``, ``subtitles`` or ``latex``, or "" for text that is read as
    it is.
    """
    suffix, head = Path(name).suffix.lower(), text[:4096]
    if _HTML.match(head) or (suffix in (".html", ".htm", ".xhtml") and _TAG.search(text)):
        return "html"
    if head.lstrip().startswith("{") and (suffix == ".ipynb" or ('"nbformat"' in text and '"cells"' in text)):
        return "ipynb"
    if _SUBTITLES.match(head):
        return "subtitles"
    return "latex" if suffix == ".tex" or _LATEX.match(head) else ""


def _old_office(data: bytes) -> str:
    """Returns the kind of an old Office file: ``doc``, ``ppt`` or ``xls``. Raises DocumentError for files of other
    programs.

    The first stream decides, because the streams of embedded documents come after it.
    """
    places = {name: data.find(f"{name}\0".encode("utf-16-le")) for name in _STREAMS}
    found = [name for name in sorted(places, key=places.__getitem__) if places[name] >= 0]
    kind = _STREAMS[found[0]] if found else ("is an old Office file", "save it in a format of today, or as PDF")
    if not isinstance(kind, str):
        raise DocumentError(*kind)
    return kind


def _mail(head: bytes, name: str) -> str:
    """Returns ``eml`` or ``mbox`` for mail, else "". ``head`` is the file's beginning; its lines end in \\n.

    A message begins with header fields that include From and one such as Date; in a .eml file any fields count.
    """
    suffix = Path(name).suffix.lower()
    if _MBOX.match(head) or suffix == ".mbox":
        return "mbox"
    fields = _HEAD.match(head)
    told = fields and _SENDER.search(fields.group()) and _SENT.search(fields.group())
    return "eml" if told or (fields and suffix == ".eml") else ""
