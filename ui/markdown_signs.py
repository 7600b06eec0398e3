"""Removes the signs of Markdown from quotations and search hits."""

import re
from pathlib import PurePath

_SUFFIXES = {".md", ".markdown", ".mdown", ".mkd"}
_HEADING = re.compile(r"^#{1,6}[ \t]+", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<!\w)(\*\*|__|`)(?=\S)([^\n]+?)(?<=\S)\1(?!\w)")


def is_markdown(name: str) -> bool:
    """Returns True if the file name is that of a Markdown document."""
    return PurePath(name).suffix.lower() in _SUFFIXES


def without_signs(text: str, name: str) -> str:
    """Returns the ``text`` of a document with this file ``name``. If it is Markdown, the signs of headings, strong
    emphasis and code are left out.
    """
    return _EMPHASIS.sub(r"\2", _HEADING.sub("", text)) if is_markdown(name) else text
