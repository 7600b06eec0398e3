"""What commands print: names, titles, documents and models may say anything, and must not control the terminal.

All commands print through these functions; a test sees to it.
"""

import re
import sys

import click

_CONTROL = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1, with ESC and CSI; a newline and a tab stay
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that change the order of letters (bidi)
    "\u2028\u2029"  # separators of lines, which some programs take for newlines
)
_UNSAFE = re.compile(f"[{_CONTROL}\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return text that a terminal only shows: controls are written as ``\x1b`` or ``\u202e``, and what is no
    character as a replacement letter. Newlines and tabs stay.
    """
    return _UNSAFE.sub(_escape, text)


def visible_line(text: str) -> str:
    r"""Return text as ``visible`` does, as one line: newlines and tabs are written as ``\n`` and ``\t``."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def printable_line(text: str) -> str:
    """Return text as ``visible`` does, as one line in which all white space is single spaces."""
    return " ".join(visible(" ".join(text.split())).split())


def visible_json(text: str) -> str:
    r"""Return JSON in which controls that JSON allows are written as ``\u009b``: it means the same."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_line(text: str) -> None:
    """Print one line on stdout."""
    print(visible_line(text), flush=True)


def print_error(text: str) -> None:
    """Print one line on stderr."""
    print(visible_line(text), file=sys.stderr, flush=True)


def print_text(text: str, end: str = "\n") -> None:
    """Print several lines on stdout, or a part of one."""
    print(visible(text), end=end, flush=True)


def print_json_text(text: str) -> None:
    """Print a JSON text on stdout."""
    print(visible_json(text), end="" if text.endswith("\n") else "\n", flush=True)


def print_marked(heading: str, text: str, pattern: re.Pattern[str] | None) -> None:
    """Print text under a heading on stdout; on a terminal the heading is bold, what matches the pattern yellow."""
    heading, text = visible_line(heading), visible(text)
    if sys.stdout.isatty():
        heading = click.style(heading, bold=True)
        text = pattern.sub(lambda m: click.style(m.group(), fg="yellow"), text) if pattern else text
    print(f"{heading}\n{text}", flush=True)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
