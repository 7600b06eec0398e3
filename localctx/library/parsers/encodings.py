"""Decodes bytes to text and finds their encoding.

Encodings are tried in this order: the one of a byte order mark, UTF-8, the declared encoding, and detected ones. Bytes
that do not fit the encoding become U+FFFD; the rest of the text is kept. UTF-8 with a few bad bytes stays UTF-8. A
declared encoding is replaced by its superset in use, such as latin-1 by cp1252, as browsers do
(https://encoding.spec.whatwg.org). The standard library lacks 75 of the 228 names in that standard. Most of these
differ from a known name only by a prefix or a hyphen, so the package webencodings, unchanged since 2017, is not used.
charset-normalizer does the detection.
"""

import codecs
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SINGLE_BYTE = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2", "koi8_r"),
    *("cp437", "cp850"),
)
_MULTI_BYTE = ("cp932", "euc_jp", "gb18030", "big5hkscs", "cp949")
"""Candidates for detection; given all of Python's encodings, it picks exotic ones even for plain French."""

_SUPERSETS = {  # by the names of Python's codecs
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso2022_jp": "iso2022_jp_ext",
    "utf-8-sig": "utf-8",
}
_ALIASES = {
    **dict.fromkeys(("cn-big5", "x-x-big5"), "big5"),
    **dict.fromkeys(("ks_c_5601-1989", "ksc_5601"), "cp949"),
    **dict.fromkeys(("unicode", "ucs-2", "iso-10646-ucs-2"), "utf-16-le"),
    "gb_2312-80": "gb18030",
    "windows-31j": "cp932",
    "koi8": "koi8-r",
    "mac": "mac-roman",
}
_DECLARE_NOTHING = {"ascii", "unicode_escape", "raw-unicode-escape", "punycode", "idna", "undefined", "mbcs", "oem"}
_SEVEN_BIT = {"utf-7", "hz", "iso2022_kr", "iso2022_jp_ext"}
_DECLARED = re.compile(rb"""^\s*<[^\0]*?\b(?:charset|encoding)\s*=\s*["']?\s*([-\w]+)""")
_JAPANESE_ESCAPE = re.compile(rb"\x1b\$[@B]")

_BAD = re.compile("[\0\udc00-\udcff\uf8f0-\uf8f3]+")  # NUL, bytes that _escape escaped, and those unused in cp932
_ESCAPED = re.compile("[\udc00-\udcff]")
_WESTERN = re.compile("(?:(?<=[A-Za-z])[\udc80-\udcff]|(?<![^\0-\x7f])[\udc80-\udcff](?=[A-Za-z0-9]))(?![^\0-\x7f])")
_WESTERN_MARKS = {0x80, 0x85, 0x91, 0x92, 0x93, 0x94, 0x96, 0x97}  # in cp1252: the euro, dots, quotation marks, dashes
_NOT_TEXT = re.compile("[\0-\x07\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffd-\uffff]")
_CONTROL = re.compile("[\0-\x1f]")
_UNRATED = re.compile("[\0-\x08\x0e-\x1f\ufffd]")  # one ESC, and charset-normalizer excludes every single-byte encoding
_HIGH_BYTES = re.compile(rb"[\x80-\xff]+")
_HALF_WIDTH = re.compile("[\uff61-\uff9f]")
_BEYOND = re.compile("[^\0-\x7f]")
_COMMON_SIGNS = re.compile(
    "[\u3041-\u30fe的一是不了在人有我他这這中大来來上个個国國到说說们們为為子和你地出道也时時年得就那要下以生会會"
    "이다는을를의가에하고은지로도기사한]"
)
_SYMBOL_IN_WORD = re.compile(r"[^\W\d_][\xa1-\xa9\xab-\xb4\xb6\xb8\xb9\xbb-\xbf][^\W\d_]")
_SAMPLE = 1 << 17  # bytes


class Decoded(NamedTuple):
    """The result of decoding bytes: the text, the name of the encoding ("" if none fits), and the number of bad bytes.

    A bad byte is one that does not fit the encoding. In the text, U+FFFD stands for one or several bad bytes in a row.
    """

    text: str
    encoding: str
    bad: int

    @property
    def unread(self) -> str:
        """A line for ``TextBuilder.note_unread`` with the number of bad bytes, or "" if there are none."""
        count = f"{self.bad:,} bytes that fit" if self.bad > 1 else "1 byte that fits"
        return f"{count} no encoding" if self.bad else ""

    @property
    def is_text(self) -> bool:
        """False if no encoding fits, or if more than one character in 10 is U+FFFD or a control character."""
        return bool(self.encoding) and len(_NOT_TEXT.findall(self.text)) <= max(2, len(self.text) // 10)


def decode_mostly(data: bytes, declared: str = "") -> Decoded:
    """Returns ``data`` as text. ``declared`` is the encoding that the file or the message names, or "".

    Never fails: a run of bytes that do not fit the encoding becomes one U+FFFD. If no encoding fits, reads the bytes as
    cp1252 and sets ``encoding`` to "".
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom) and ((read := _lenient(data, encoding)).is_text or encoding != "utf-32"):
            return read  # text in UTF-16 that begins with NUL has the mark of UTF-32
    name = codec_name(declared)
    return (
        _seven_bit(data, name)
        or _utf_8(data, name)
        or _declared(data, name)
        or _likely_cjk(data)
        or _utf_16(data)
        or _likely(data)
        or _lenient(data, "cp1252")._replace(encoding="")
    )


def declared_encoding(data: bytes) -> str:
    """Returns the encoding that a web page or an XML file declares in its first 1,024 bytes, or ""."""
    match = _DECLARED.match(data[:1024])
    return match.group(1).decode() if match else ""


def codec_name(declared: str) -> str:
    """Returns the name of Python's codec for a declared encoding, or "" if the name is unknown or not a text encoding.

    If a superset of the encoding is in use instead, returns the codec of the superset: cp1252 for ISO 8859-1.
    """
    name = declared.strip().lower()
    for known in (name, _ALIASES.get(name, ""), name.removeprefix("x-"), re.sub("^(x-)?(windows|dos)-", "cp", name)):
        try:
            found = codecs.lookup(re.sub("^iso8859(\\d+)$", r"iso8859-\1", re.sub("-[ei]$", "", known)))
        except (LookupError, ValueError):
            continue
        is_text = getattr(found, "_is_text_encoding", True) and found.name not in _DECLARE_NOTHING
        return _SUPERSETS.get(found.name, found.name) if is_text else ""
    return ""


def _seven_bit(data: bytes, name: str) -> Decoded | None:
    """Returns text in an encoding of seven bits: the declared ``name``, or ISO-2022-JP if the data has escapes of that
    encoding.

    Returns None if the data is in neither, or if more than one byte in five is bad.
    """
    found = name if name in _SEVEN_BIT else "iso2022_jp_ext" if _JAPANESE_ESCAPE.search(data) else ""
    return read if found and 5 * (read := _lenient(data, found)).bad <= len(data) else None


def _utf_8(data: bytes, name: str) -> Decoded | None:
    """Returns UTF-8 text, or None if the bad bytes (NUL not counted) outnumber the letters beyond ASCII.

    Also returns None if the declared encoding ``name`` has several bytes for a letter and fits without bad bytes while
    UTF-8 does not, because that encoding is then likelier.
    """
    escaped = data.rstrip(b"\0").decode("utf-8", "localctx_escape")
    bad = len(_ESCAPED.findall(escaped))
    if bad and 2 * bad > len(escaped) - len(escaped.encode("ascii", "ignore")):
        return None
    if bad and name in _MULTI_BYTE and not _lenient(data, name).bad:
        return None
    if _NOT_TEXT.search(escaped) and 3 * len(_CONTROL.findall(escaped)) > max(9, len(escaped)):
        return None  # UTF-16: half of its bytes are such in many scripts
    return _marked(_with_western_letters(escaped) if bad else escaped, "utf-8")


def _declared(data: bytes, name: str) -> Decoded | None:
    is_new = name not in ("", "utf-8", *_SEVEN_BIT)
    return read if is_new and (read := _lenient(data, name)).bad <= _few(data) else None


def _few(data: bytes) -> int:
    """Returns how many bad bytes there may be if an encoding fits: two, or 1 in 20 of the bytes beyond ASCII."""
    return max(2, sum(map(len, _HIGH_BYTES.findall(data))) // 20)


def _lenient(data: bytes, encoding: str) -> Decoded:
    if encoding.startswith(("utf-16", "utf-32")):
        text = data.decode(encoding, "replace").rstrip("\0").replace("\0", "\ufffd")
        return Decoded(text, encoding, text.count("\ufffd"))
    return _marked(data.rstrip(b"\0").decode(encoding, "localctx_escape"), encoding)


def _marked(escaped: str, encoding: str) -> Decoded:
    """Returns the ``escaped`` text with U+FFFD in place of each run of bytes that ``_escape`` marked as bad."""
    bad = sum(map(len, _BAD.findall(escaped)))
    return Decoded(_BAD.sub("\ufffd", escaped) if bad else escaped, encoding, bad)


def _with_western_letters(escaped: str) -> str:
    """Returns UTF-8 text in which some bad bytes are replaced by the letters that they are in cp1252.

    This is done for a byte beside ASCII letters that is not the first byte of any other letter of the text: a damaged
    letter would leave its first byte.
    """
    beyond = {c for c in set(escaped) if c > "\x7f" and not _BAD.match(c)}
    firsts = {0xC2, 0xC3, *(c.encode()[0] for c in beyond)}

    def letter(match: re.Match[str]) -> str:
        byte = ord(match.group()) & 0xFF
        is_western = byte in _WESTERN_MARKS or (byte >= 0xC0 and byte not in firsts)
        return bytes([byte]).decode("cp1252") if is_western else match.group()

    return _WESTERN.sub(letter, escaped)


def _utf_16(data: bytes) -> Decoded | None:
    """Returns UTF-16 text that has no byte order mark, or None if the data does not look like such text.

    In UTF-16 the high bytes of letters vary less than the low ones, and some of the high bytes are those of ASCII,
    alphabets or CJK punctuation.
    """
    sample = data[:_SAMPLE]
    high, low = sorted((sample[::2], sample[1::2]), key=lambda half: len(set(half)))
    marks = sum(high.count(byte) for byte in (*range(0x20), 0x30, 0xFF))
    if 2 * len(set(low)) < 3 * len(set(high)) or marks < max(3, len(high) // 20):
        return None
    read = _lenient(data, "utf-16-be" if high == sample[::2] else "utf-16-le")
    strange = sum(unicodedata.category(c) in ("Cn", "Co", "Cs") for c in read.text[:_SAMPLE])
    return read if read.is_text and 20 * strange <= len(read.text[:_SAMPLE]) else None


def _likely_cjk(data: bytes) -> Decoded | None:
    """Returns the text in the encoding with the most common Chinese, Japanese and Korean characters, or None.

    In the right encoding, common characters are a quarter or more of the letters beyond ASCII; in a wrong encoding,
    they are a fiftieth.
    """
    sample, names = data[:_SAMPLE], (*_MULTI_BYTE, "utf-16-le", "utf-16-be")
    few = _few(sample)
    texts = {name: read.text for name in names if (read := _lenient(sample, name)).bad <= few}
    shares = {name: len(_COMMON_SIGNS.findall(t)) / (len(_BEYOND.findall(t)) or 1) for name, t in texts.items()}
    best = max(shares, key=shares.__getitem__, default="")
    return _lenient(data, best) if best and shares[best] > 0.12 else None


def _likely(data: bytes) -> Decoded | None:
    """Returns the text in the encoding in which it looks most like a language, or None. A short text may fit none."""
    from charset_normalizer import CharsetMatches, from_bytes

    matches = CharsetMatches()
    for name, text in _candidates(data[:_SAMPLE]):
        clean = _UNRATED.sub("", text).encode(name, "ignore")
        if clean and (match := from_bytes(clean, cp_isolation=[name], threshold=0.4).best()):
            matches.append(match)
    best, western = matches.best(), next((m for m in matches if m.encoding == "cp1252"), None)
    if best and western and best.coherence - western.coherence < 0.05 and western.chaos - best.chaos < 0.1:
        # prefers the most common encoding if it is about as likely
        best = best if _SYMBOL_IN_WORD.search(str(western)) else western
    return _lenient(data, best.encoding) if best else None


def _candidates(sample: bytes) -> Iterator[tuple[str, str]]:
    """Yields the encodings in which few bytes are bad, each with the text decoded in it.

    Leaves out encodings with several bytes for a letter if at least 7 in 10 runs of bytes beyond ASCII are one byte
    long, as accented letters are. (In Big5, 4 in 10 runs are.) Leaves out texts with many half-width Japanese letters,
    which hardly anybody uses: Cyrillic bytes look like them.
    """
    runs = _HIGH_BYTES.findall(sample)
    names = _SINGLE_BYTE if 10 * sum(len(run) == 1 for run in runs) >= 7 * len(runs) else _SINGLE_BYTE + _MULTI_BYTE
    few = _few(sample) + sample.rstrip(b"\0").count(b"\0")
    for name in names:
        read = _lenient(sample, name)
        if read.bad <= few and 4 * len(_HALF_WIDTH.findall(read.text)) < len(read.text):
            yield name, read.text


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Decode the bytes that caused a decoding error: as a letter that Windows adds to Japanese encodings, else the
    first byte as a character from U+DC00 to U+DCFF.
    """
    assert isinstance(error, UnicodeDecodeError)
    return _japanese_letter(error) or (chr(0xDC00 + error.object[error.start]), error.start + 1)


def _japanese_letter(error: UnicodeDecodeError) -> tuple[str, int] | None:
    """Decode a letter that Windows adds to EUC-JP or ISO-2022-JP, such as a circled number. The letter is decoded as in
    cp932, the encoding of Windows.
    """
    first = 0xA0 if error.encoding == "euc_jp" else 0x20 if error.encoding.startswith("iso2022_jp") else 0
    row, cell = (b - first for b in (*error.object[error.start : error.start + 2], 0, 0)[:2])
    if not first or not (1 <= row <= 94 and 1 <= cell <= 94):
        return None
    lead = (row + 1) // 2 + (0x80 if row <= 62 else 0xC0)
    trail = cell + 0x9E if row % 2 == 0 else cell + 0x3F + (cell > 63)
    letter = bytes([lead, trail]).decode("cp932", "ignore")
    return (letter if len(letter) == 1 else "\udcff", error.start + 2)


codecs.register_error("localctx_escape", _escape)
