"""Finds the headings of Markdown: lines after # and underlined ones, outside of code, comments and front matter.

markdown-it-py, which rich depends on, finds the same headings, and more of them in lists and quotes. It takes a second
for 4 MB and keeps a token of every paragraph, too much to find only headings.
"""

import re
from collections.abc import Iterator

from localctx.library.parsers.text_builder import Mark

_FRONT_MATTER = re.compile(r"""(---|\+\+\+)[ \t]*\n(?=[\w"'.-]+[ \t]*[:=])(?:.*\n)*?(?:\1|\.\.\.)[ \t]*(?:\n|\Z)""")
_FENCE = re.compile(r"([ \t]*(?:(?:[-+*>]|\d{1,9}[.)])[ \t]+|>)*)(?:(`{3,})[^`]*|(~{3,}).*)")
_HASHED = re.compile(r" {0,3}#{1,6}(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*")
_NO_PARAGRAPH = re.compile(r" {0,3}(?:[-+*>]|\d{1,9}[.)])(?:[ \t]|$)|\s*$| {4}|\t| {0,3}(?:[-*_][ \t]*){3,}$")
_HIDDEN = re.compile(r" {0,3}<(!--|pre|script|style|textarea)", re.IGNORECASE)


def headings(text: str) -> list[Mark]:
    """Returns the headings of a Markdown text as marks: (start, ``heading``, the heading's text)."""
    found, paragraph = list[Mark](), -1  # where the open paragraph begins
    for start, line in _lines_outside_code(text, front_matter_end(text)):
        hashed = _HASHED.fullmatch(line)
        if paragraph >= 0 and _UNDERLINE.fullmatch(line):
            found.append((paragraph, "heading", " ".join(text[paragraph:start].split())))
        elif hashed and hashed.group(1):
            found.append((start, "heading", hashed.group(1)))
        elif not (hashed or _NO_PARAGRAPH.match(line)):
            paragraph = start if paragraph < 0 else paragraph
            continue
        paragraph = -1
    return found


def front_matter_end(text: str) -> int:
    """Returns where the front matter at the beginning of a Markdown text ends, or 0 if it has none."""
    front = _FRONT_MATTER.match(text)
    return front.end() if front else 0


def _lines_outside_code(text: str, start: int) -> Iterator[tuple[int, str]]:
    """Yields (start, line) for each line. The line is "" inside fenced code, comments and some HTML elements."""
    end: re.Pattern[str] | None = None  # of the open code or comment
    indent = ""  # before an open fence
    for line in text[start:].splitlines(keepends=True):
        content = line.rstrip("\n")
        if end and indent and content.strip() and not content.startswith(indent):
            end = None  # the list or quote around the fence ended
        is_inside = end is not None
        if end is None:
            end, indent = _opened(content)
        elif end.search(content):
            end = None
        yield start, "" if is_inside or end else content
        start += len(line)


def _opened(line: str) -> tuple[re.Pattern[str] | None, str]:
    """Returns the pattern of the end of the code or comment that begins in ``line`` (None: none begins), and an indent.

    Each line of a fence inside a list or quote begins with the indent.
    """
    if fence := _FENCE.fullmatch(line):
        before, mark = fence.group(1), fence.group(2) or fence.group(3)
        end = re.compile(rf"^[ \t>]*{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$")
        if before.strip():
            return end, ">" if before.lstrip().startswith(">") else " " * (len(before) - len(before.lstrip()) + 1)
        return end, "    " if len(before) > 3 else ""
    if hidden := _HIDDEN.match(line):
        tag = hidden.group(1).lower()
        end = re.compile("-->" if tag == "!--" else f"</{tag}>", re.IGNORECASE)
        return (None if end.search(line, hidden.end()) else end), ""
    return None, ""
