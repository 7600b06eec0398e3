"""Decodes bytes to text by byte order mark, as UTF-8, as declared, or by detection. Finds Markdown headings."""

import codecs
import re

from localctx.errors import DocumentError
from localctx.library.parsers.text_builder import Mark

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CODE_PAGES = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2", "koi8_r"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949", "utf_16_le", "utf_16_be", "cp437", "cp850"),
)  # candidates for detection; given all of Python's encodings, it picks exotic ones even for plain French
_SYMBOL_IN_WORD = re.compile(r"[^\W\d_][\xa1-\xa9\xab-\xb4\xb6\xb8\xb9\xbb-\xbf][^\W\d_]")
_DECLARED = re.compile(rb"""^\s*<[^\0]*?\b(?:charset|encoding)\s*=\s*["']?\s*([-\w]+)""")
_HEADING = re.compile(r"^#{1,6}[ \t](.*)$", re.MULTILINE)


def decode_text(data: bytes, source: str) -> tuple[str, str]:
    """Returns the text, with newlines as \\n, and its encoding. Raises DocumentError for data that is not text."""
    text, encoding = _decode(data, source)
    return text.replace("\r\n", "\n").replace("\r", "\n"), encoding


def headings(text: str) -> list[Mark]:
    """Returns the headings of a Markdown text, without those in fenced code."""
    matches = _HEADING.finditer(_blank_fences(text))
    return [(m.start(), "heading", m.group(1).strip(" \t#")) for m in matches]


def _blank_fences(text: str) -> str:
    return re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.MULTILINE | re.DOTALL)


def _decode(data: bytes, source: str) -> tuple[str, str]:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _decode_with_bom(data, encoding, source), encoding
    if b"\0" not in data:
        for encoding in ("utf-8", *_declared(data)):
            try:
                return data.decode(encoding), encoding
            except (UnicodeDecodeError, LookupError):
                pass
    return _detect(data, source)


def _declared(data: bytes) -> list[str]:
    """Returns the encoding that a web page declares, if any. On the web, latin-1 means cp1252."""
    match = _DECLARED.match(data[:1024])
    name = match.group(1).decode().lower() if match else ""
    return ["cp1252" if name in ("iso-8859-1", "latin1", "latin-1", "us-ascii") else name] if name else []


def _decode_with_bom(data: bytes, encoding: str, source: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as e:
        raise DocumentError(f"{source} begins as {encoding} but is not ({e.reason})", "save it as UTF-8") from e


def _detect(data: bytes, source: str) -> tuple[str, str]:
    from charset_normalizer import from_bytes

    matches = from_bytes(data, cp_isolation=list(_CODE_PAGES)) if data else None
    best = matches.best() if matches else None
    western = next((m for m in matches or () if m.encoding == "cp1252"), None)
    if best and western and best.coherence - western.coherence < 0.05 and western.chaos - best.chaos < 0.1:
        best = (
            best if _SYMBOL_IN_WORD.search(str(western)) else western
        )  # prefers the most common encoding if it is about as likely
    if data and (best is None or _looks_binary(str(best))):
        raise DocumentError(f"{source} is not text in any encoding known here", "give a text file, best in UTF-8")
    return (str(best), best.encoding) if best else ("", "utf-8")


def _looks_binary(text: str) -> bool:
    control = sum(not c.isprintable() and c not in "\n\r\t\f" for c in text)
    return control > len(text) // 100
