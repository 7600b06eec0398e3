"""The functions through which all commands print.

Names, titles, documents and models may contain anything, so control characters are escaped before they reach the
terminal. A test checks that all commands print through these functions.
"""

import codecs
import json
import re
import sys
import unicodedata

import click

_CONTROL = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1, with ESC and CSI, without newline and tab
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that change the order of letters (bidi)
    "\u2028\u2029"  # line separators, which some programs treat as newlines
)
SIMILAR = "localctx.similar"
"""The name of an error handler for encodings. It writes similar letters, such as - for a dash, else ``?``."""
_SIMILAR = str.maketrans(
    {
        **dict.fromkeys("‐‑‒–—―−", "-"),  # noqa: RUF001
        **dict.fromkeys("‘’‚‛′", "'"),  # noqa: RUF001
        **dict.fromkeys("“”„‟″«»", '"'),
        **{"…": "...", "•": "*", "→": "->", "←": "<-", "€": "EUR", "£": "GBP", "©": "(c)", "✓": "ok", "ß": "ss"},
        **{"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "×": "x"},  # noqa: RUF001
    }
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_UNSAFE = re.compile(f"[{_CONTROL}\ud800-\udfff]")


def _write_similar(error: UnicodeError) -> tuple[str, int]:
    """The error handler SIMILAR. Returns similar letters in place of the letters that the encoding lacks, and the
    position after them.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_similar(letter, error.encoding) for letter in lacking), error.end


def _similar(letter: str, encoding: str) -> str:
    similar = unicodedata.normalize("NFKD", letter.translate(_SIMILAR))
    written = similar.encode(encoding, "ignore").decode(encoding)
    return written or ("" if unicodedata.combining(letter) else "?")


codecs.register_error(SIMILAR, _write_similar)


def visible(text: str) -> str:
    r"""Returns text without characters that control a terminal: they are escaped as ``\x1b`` or ``\u202e``, and lone
    surrogates become replacement characters. Newlines and tabs stay.
    """
    return _UNSAFE.sub(_escape, text)


def visible_line(text: str) -> str:
    r"""Returns the same as ``visible``, but as one line: newlines and tabs are escaped as ``\n`` and ``\t``."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def printable_line(text: str) -> str:
    """Returns the same as ``visible``, but as one line with all white space reduced to single spaces."""
    return " ".join(visible(" ".join(text.split())).split())


def visible_json(text: str) -> str:
    r"""Returns JSON with the same meaning, in which control characters are escaped as ``\u009b``."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_line(text: object) -> None:
    """Print one line on stdout."""
    print(visible_line(str(text)), flush=True)


def print_error(text: object) -> None:
    """Print one line on stderr."""
    print(visible_line(str(text)), file=sys.stderr, flush=True)


def print_text(text: str, end: str = "\n") -> None:
    """Print several lines, or part of a line, on stdout."""
    print(visible(text), end=end, flush=True)


def print_json_text(text: str) -> None:
    r"""Print a JSON text on stdout. Letters that the encoding lacks are escaped as ``\u20ac``."""
    print(
        _written(visible_json(text), sys.stdout.encoding or "utf-8"),
        end="" if text.endswith("\n") else "\n",
        flush=True,
    )


def print_marked(heading: str, text: str, pattern: re.Pattern[str] | None) -> None:
    """Print text under a heading on stdout. On a terminal the heading is bold and matches of the pattern are yellow."""
    heading, text = visible_line(heading), visible(text)
    if sys.stdout.isatty():
        heading = click.style(heading, bold=True)
        text = pattern.sub(lambda m: click.style(m.group(), fg="yellow"), text) if pattern else text
    print(f"{heading}\n{text}", flush=True)


def _written(text: str, encoding: str) -> str:
    """Returns equivalent JSON in which letters that ``encoding`` lacks are escaped."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return text


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
