"""Finds the headings, lists, tables, code and emphasis of a Markdown text, as ranges of its characters.

markdown-it finds the structure. It tells only the lines of blocks; words are searched for in these lines.
"""

import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from localctx.library.parsers.plain.markdown import front_matter_end
from localctx.store.documents import StoredDocument
from localctx.ui.viewer.layout_range import SYNTAX, LayoutRange

_BEFORE = 100_000  # most characters above a section that are read to know whether it begins in code or in a list
_BLOCKS = {
    **{"bullet_list_open": "ul", "ordered_list_open": "ol", "list_item_open": "li", "blockquote_open": "blockquote"},
    **{"table_open": "table", "tr_open": "tr", "hr": "div"},
}
_EMPHASIS = {"strong": "strong", "em": "em", "s": "s"}
_ESCAPED_PIPE = re.compile(r"\\(?=\|)")
_COMMENT = re.compile(r"<!--[^\n<]*?-->")
_LINK = re.compile(r"(!?\[)[^\[\]\n]+(\]\([^()\s]*\))")
_LINE = re.compile(r"[^\n]+")
_NO_WORDS = re.compile(r"(?:\W|_|\d{1,9}[.)])*|\s*(?:`{3,}|~{3,})\s*[\w.+#-]{0,20}\s*")
_parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_parser.disable(
    ["link", "image", "autolink", "html_inline", "html_block", "reference", "entity", "text_join", "inline"]
)


def markdown_ranges(document: StoredDocument, start: int, end: int) -> list[LayoutRange]:
    """Returns the ranges that set the characters ``start..end`` of a Markdown document.

    The text is read from the heading above, because a section may begin inside code or a list.
    """
    above = max((s.start for s in document.spans if s.kind == "heading" and s.start <= start), default=0)
    begin = above if start - above <= _BEFORE else start
    return _MarkdownRanges(document.text[:end], begin, start).ranges()


class _MarkdownRanges:
    """Collects the ranges of ``text`` from ``begin``. Emphasis is sought only after ``shown``."""

    def __init__(self, text: str, begin: int, shown: int) -> None:
        self._text, self._begin, self._shown = text, begin, shown
        self._found, self._words = list[LayoutRange](), list[tuple[int, int]]()
        self._lines = [begin, *(m.end() for m in re.compile("\n").finditer(text, begin)), len(text) + 1]  # their starts
        self._leaf, self._is_right = "p", False
        self._column, self._cell_at = 0, begin

    def ranges(self) -> list[LayoutRange]:
        """Returns the ranges: blocks, words inside them, and the characters between the words."""
        text, front = self._text[self._begin :], 0 if self._begin else front_matter_end(self._text)
        if front:
            self._add("pre", [(0, len(text[:front].rstrip()))])
        for token in _parser.parse("\n" * text.count("\n", 0, front) + text[front:]):
            if token.map:
                self._read(token, *token.map)
            elif token.type in ("th_open", "td_open"):
                self._leaf, self._is_right = token.tag, "right" in str(token.attrs)
        return [*self._found, *self._between()]

    def _read(self, token: Token, first: int, last: int) -> None:
        if tag := _BLOCKS.get(token.type):
            self._block(tag, int(token.info or 0) if tag == "li" else "", self._lines[first], self._lines[last] - 1)
        elif token.type in ("fence", "code_block") and token.content.strip():
            self._add("pre", self._pieces(token.content.rstrip("\n"), first + (token.type == "fence")))
        elif token.type == "inline" and self._leaf in ("th", "td"):
            self._cell(token, self._lines[first + 1])
        elif token.type == "inline":
            self._add(self._leaf, pieces := self._pieces(token.content, first))
            self._emphasis(token.content, pieces)
        else:  # the levels of headings begin below the viewer's own h2
            self._leaf = f"h{min(6, int(token.tag[1]) + 2)}" if token.type == "heading_open" else "p"

    def _block(self, tag: str, value: object, start: int, end: int) -> None:
        end = start + len(self._text[start:end].rstrip())
        self._found.append(LayoutRange(start, end, tag, [] if tag == "table" else value))
        if tag == "tr":
            self._column, self._cell_at = 0, start

    def _add(self, tag: str, pieces: Sequence[tuple[int, int]], value: object = "") -> None:
        """Add an element of words; ``pieces`` are its words line by line."""
        self._found.append(LayoutRange(pieces[0][0], pieces[-1][1], tag, value))
        self._words += pieces

    def _pieces(self, content: str, first: int) -> list[tuple[int, int]]:
        """Returns where the lines of ``content`` are, which is in the lines from ``first`` without, say, ``> ``."""
        found = list[tuple[int, int]]()
        for line, words in enumerate(content.split("\n"), first):
            start, end = self._lines[line], self._lines[line + 1] - 1
            at = self._text.rfind(words, start, end)
            found.append((at, at + len(words)) if at >= 0 else (start, end))  # tabs became spaces
        return found

    def _cell(self, token: Token, end: int) -> None:
        """Add the next cell of a row that ends at ``end``. markdown-it removed the backslash before ``|``."""
        words = re.compile(re.escape(token.content).replace(r"\|", r"\\?\|"))
        found = words.search(self._text, self._cell_at, end) if token.content else None
        if found:
            self._add(self._leaf, [found.span()], (self._column, self._is_right))
            self._emphasis(token.content, [found.span()])
            pipes = _ESCAPED_PIPE.finditer(self._text, *found.span())
            self._found += [LayoutRange(*pipe.span(), "span", SYNTAX) for pipe in pipes]
            self._cell_at = found.end()
        self._column += 1

    def _emphasis(self, content: str, pieces: Sequence[tuple[int, int]]) -> None:
        if pieces[-1][1] > self._shown:
            _parser.inline.parse(content, _parser, {}, children := list[Token]())
            self._found += _emphasis(self._text, pieces[0][0], pieces[-1][1], children)

    def _between(self) -> Iterator[LayoutRange]:
        """Yields the characters that are not in words, line by line. They are hidden if they are signs only."""
        at = self._begin
        for start, end in [*self._words, (len(self._text),) * 2]:
            for line in _LINE.finditer(self._text, at, max(at, start)):
                yield LayoutRange(*line.span(), "span", SYNTAX if _NO_WORDS.fullmatch(line[0]) else "lc-dim")
            at = end


def _emphasis(text: str, at: int, end: int, tokens: Sequence[Token]) -> Iterator[LayoutRange]:
    """Yields the ranges of bold words, code and the like in ``text[at:end]``, and those of the signs around them."""
    opened = list[int]()
    for token in tokens:
        sign = "\n" if token.type in ("softbreak", "hardbreak") else token.markup or token.content
        start = text.find(sign, at, end)
        if start < 0:
            return
        at = start + len(sign)
        kind, _, side = token.type.rpartition("_")
        if token.type == "text":
            yield from (LayoutRange(*found.span(), "span", "lc-dim") for found in _COMMENT.finditer(text, start, at))
            for link in _LINK.finditer(text, start, at):
                yield from (LayoutRange(*link.span(group), "span", SYNTAX) for group in (1, 2))
        elif token.type == "hardbreak":
            yield LayoutRange(start, at, "span", "lc-break")
            yield LayoutRange(start - (text[start - 1] == "\\"), start, "span", SYNTAX)
        elif token.type == "text_special" and token.content != sign:
            yield LayoutRange(start, start + 1, "span", SYNTAX)
        elif token.type == "code_inline":
            close = max(at, text.find(sign, at + len(token.content), end))
            yield LayoutRange(at, close, "code")
            yield from (LayoutRange(a, a + len(sign), "span", SYNTAX) for a in (start, close))
            at = close + len(sign)
        elif kind in _EMPHASIS:
            yield LayoutRange(start, at, "span", SYNTAX)
            if side == "open":
                opened.append(start)
            elif opened:
                yield LayoutRange(opened.pop(), at, _EMPHASIS[kind])
