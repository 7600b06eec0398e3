"""Builds the text that a browser shows of a page's elements: lists, tables, form values, formulas."""

import re
from dataclasses import dataclass, field

from localctx.library.parsers.list_numbers import MARKERS, marked
from localctx.library.parsers.text_builder import TextBuilder

_INVISIBLE = {
    *("head", "title", "script", "style", "template", "noscript", "iframe", "object", "canvas", "audio", "video"),
    *("datalist", "rt", "rp", "rtc", "desc", "metadata", "defs", "annotation", "annotation-xml", "-comment"),
}
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_BLOCKS = {
    *("p", "blockquote", "pre", "table", "ul", "ol", "dl", "section", "article", "header", "footer", "main", "nav"),
    *("aside", "figure", "form", "fieldset", "hr", "details", "textarea"),
}
_LINES = {"div", "li", "tr", "dt", "dd", "br", "caption", "figcaption", "address", "legend", "summary", "text"}
_APART = {"button", "select", "input", "img"}  # boxes within a line, apart from the words beside them
_UNTYPED = {"hidden", "password", "file", "image", "range", "color"}  # fields without words
_BETWEEN = {"msup": "^", "msub": "_", "mfrac": "/", "msubsup": "_^", "munder": "_", "mover": "^", "munderover": "_^"}
_STYLE_PRE = re.compile(r"white-space:(?:pre|break-spaces)")
_STYLE_HIDES = re.compile(r"display:none|visibility:(?:hidden|collapse)")
_FILE_NAME = re.compile(r"\S+\.(?:png|jpe?g|gif|svg|webp|bmp)", re.IGNORECASE)
_RAISED = str.maketrans("0123456789+-\u2212", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
_MAX_SPAN = 1000  # rows or columns


@dataclass
class _WebList:
    """A list that is being read: the marker of its items (``1``, ``a``, ``A``, ``i``, ``I``, or "" for none) and the
    next number.
    """

    marker: str
    number: int
    step: int


@dataclass
class _Table:
    """A table that is being read: the open row, the cells that reach into it from above, and the open cell.

    ``above`` are cells from earlier rows that reach into the open row, and ``below`` are cells that reach into the next
    row.
    """

    row: dict[int, str] = field(default_factory=dict)
    above: dict[int, tuple[int, str]] = field(default_factory=dict)  # by column: rows left, text
    below: dict[int, tuple[int, str]] = field(default_factory=dict)
    cell: tuple[int, int, int] | None = None  # column, rows and columns spanned
    outer: TextBuilder | None = None  # the builder around the open cell

    def fill(self, column: int) -> None:
        """Write the cell that reaches into the open row from a row above, at this ``column``, into the open row."""
        rows, self.row[column] = self.above.pop(column)
        if rows > 1:
            self.below[column] = rows - 1, self.row[column]

    def end_row(self) -> str:
        """Returns the open row as a line with tabs, and begins the next row.

        Returns "" for a row without cells of its own.
        """
        is_empty = not self.row
        for column in sorted(self.above):
            self.fill(column)
        cells = [] if is_empty else [self.row.get(at, "") for at in range(max(self.row) + 1)]
        self.row, self.above, self.below = {}, self.below, {}
        return "\t".join(cells).rstrip()


class WebPageText:
    """Builds the text that a browser shows of a web page, in a TextBuilder.

    Callers report the elements in document order: ``start``, then ``text`` and the children, then ``end``.
    """

    def __init__(self, builder: TextBuilder) -> None:
        self._builder = builder
        self._lists = list[_WebList]()
        self._tables = list[_Table | None]()  # None: only for layout
        self._formulas = list[list[str]]()  # for each open element of a formula: what comes before its next children
        self._options: list[tuple[bool, str]] | None = None  # of the open select: chosen, text
        self._pre = list[bool]()  # for each open element: True if white space is shown as written
        self._preserving = 0  # the number of open elements whose white space is shown
        self._marker = ""  # of a list item that has no text yet
        self._last = ""  # the last character
        self._raised = 0

    def start(self, tag: str, attributes: dict[str, str]) -> bool:
        """Begin an element with this ``tag``.

        Returns False if a browser shows nothing of the element. Its children, its text and its end must then not be
        reported.
        """
        style = re.sub(r"\s", "", attributes.get("style", "")).lower()
        if tag in _INVISIBLE or _is_hidden(tag, attributes, style):
            return False
        if tag == "math" and attributes.get("alttext"):
            self.text(attributes["alttext"])
            return False
        self._before_in_formula(tag)
        if tag in _HEADINGS:
            self._builder.begin_heading()
        else:
            self._break(tag)
        is_pre = tag in ("pre", "textarea", "listing") or bool(_STYLE_PRE.search(style))
        self._pre.append(is_pre and not self._in_cell())
        self._preserving += self._pre[-1]
        self._raised += tag == "sup"
        self._start_one(tag, attributes, style)
        return True

    def text(self, text: str) -> None:
        """Append running text. Inside <pre>, its white space is kept."""
        if self._options:
            chosen, before = self._options[-1]
            self._options[-1] = chosen, before + text
            return
        if self._options is not None or not text:
            return
        if self._raised and self._last.isdigit() and re.fullmatch("[-+\u2212]?[0-9]+", text):
            text = text.translate(_RAISED)
        if self._marker and text.strip():
            self._builder.words(f"{self._marker} ")
            self._marker = ""
        if self._preserving:
            self._builder.verbatim(text)
        else:
            self._builder.words(text)
        self._last = text[-1]

    def end(self, tag: str) -> None:
        """End the element that ``start`` began last."""
        if self._formulas:
            self._formulas.pop()
        if tag in _HEADINGS:
            self._builder.end_heading()
        elif tag in ("td", "th"):
            self._end_cell()
        elif tag == "tr":
            self._end_row()
        elif tag == "select":
            self._end_select()
        elif tag == "q":
            self.text("\N{RIGHT DOUBLE QUOTATION MARK}")
        if tag in ("ul", "ol", "menu") and self._lists:
            self._lists.pop()
        if tag == "li":
            self._marker = ""  # of an empty item
        if tag == "table" and self._tables:
            self._end_row()
            self._tables.pop()
        self._preserving -= self._pre.pop()
        self._raised -= bool(self._raised) and tag == "sup"
        if tag != "br":
            self._break(tag)

    def _break(self, tag: str) -> None:
        newlines = 2 if tag in _BLOCKS else 1 if tag in _LINES else 0
        if newlines:
            self._builder.line(newlines)
            self._last = ""
        elif tag in _APART:
            self._builder.words(" ")

    def _start_one(self, tag: str, attributes: dict[str, str], style: str) -> None:
        """Begin an element that shows more than its text, such as a list, a table cell or a form field."""
        if tag in ("ul", "ol", "menu"):
            self._lists.append(_list(tag, attributes, style))
        elif tag == "li":
            self._start_item(attributes)
        elif tag == "table":
            is_layout = attributes.get("role") == "presentation" or self._in_cell()
            self._tables.append(None if is_layout else _Table())
        elif tag in ("td", "th"):
            self._start_cell(attributes)
        elif tag == "select":
            self._options = []
        elif tag == "option" and self._options is not None:
            self._options.append(("selected" in attributes, ""))
        elif tag == "q":
            self.text("\N{LEFT DOUBLE QUOTATION MARK}")
        elif shown := _shown_value(tag, attributes):
            self.text(f"{shown} ")

    def _before_in_formula(self, tag: str) -> None:
        """Append the sign between two parts of a formula, so that x² is ``x^2``, not ``x2``."""
        if self._formulas and self._formulas[-1]:
            self.text(self._formulas[-1].pop(0))
        if tag == "math" or self._formulas:
            self._formulas.append(["", *_BETWEEN.get(tag, "")])

    def _start_item(self, attributes: dict[str, str]) -> None:
        if not self._lists:
            return
        items = self._lists[-1]
        items.number = _number(attributes.get("value"), items.number)
        self._marker = f"{marked(items.number, items.marker)}." if items.marker else ""
        items.number += items.step

    # Tables of data: a row is one line, its cells divided by tabs, and a cell over several rows is in each of them.

    def _in_cell(self) -> bool:
        return any(table and table.cell for table in self._tables)

    def _start_cell(self, attributes: dict[str, str]) -> None:
        table = self._tables[-1] if self._tables else None
        if table is None or table.cell:
            return
        column = max(table.row, default=-1) + 1
        while column in table.above:
            table.fill(column)
            column += 1
        rows, columns = (_number(attributes.get(span), 1) for span in ("rowspan", "colspan"))
        table.cell = column, min(rows, _MAX_SPAN), min(columns, _MAX_SPAN)
        table.outer, self._builder = self._builder, TextBuilder()

    def _end_cell(self) -> None:
        table = self._tables[-1] if self._tables else None
        if table is None:
            self._builder.cell()
        elif table.cell and table.outer:
            text, _ = self._builder.done()
            column, rows, columns = table.cell
            text, self._builder, table.cell = " ".join(text.split()), table.outer, None
            for at in range(column, column + max(columns, 1)):
                table.row[at] = text if at == column else ""
                if rows > 1:
                    table.below[at] = rows - 1, table.row[at]

    def _end_row(self) -> None:
        table = self._tables[-1] if self._tables else None
        if table and not table.cell and (line := table.end_row()):
            self._builder.line()
            self._builder.verbatim(line)

    def _end_select(self) -> None:
        options, self._options = self._options or [], None
        chosen = [text for is_chosen, text in options if is_chosen] or [text for _, text in options[:1]]
        self.text(f"{', '.join(' '.join(text.split()) for text in chosen)} ")


def _is_hidden(tag: str, attributes: dict[str, str], style: str) -> bool:
    is_closed = tag == "dialog" and "open" not in attributes
    return "hidden" in attributes or is_closed or bool(_STYLE_HIDES.search(style))


def _shown_value(tag: str, attributes: dict[str, str]) -> str:
    """Returns the text that is shown for an element without text: the value of a field, a check mark, or the ``alt`` of
    a picture.
    """
    kind = attributes.get("type", "").lower()
    if tag == "input" and kind in ("checkbox", "radio"):
        return "[x]" if "checked" in attributes else "[ ]"
    if tag == "input" and kind not in _UNTYPED:
        return attributes.get("value", "")
    alt = attributes.get("alt", "").strip() if tag == "img" else ""
    return "" if _FILE_NAME.fullmatch(alt) else alt


def _list(tag: str, attributes: dict[str, str], style: str) -> _WebList:
    is_bare = tag != "ol" or "list-style:none" in style or "list-style-type:none" in style
    kind = attributes.get("type", "1")
    count = _number(attributes.get("reversed"), 1)
    start = _number(attributes.get("start"), count)
    return _WebList("" if is_bare else kind if kind in MARKERS else "1", start, -1 if "reversed" in attributes else 1)


def _number(value: str | None, otherwise: int) -> int:
    match = re.match(r"\s*(-?\d{1,9})", value or "")
    return int(match.group(1)) if match else otherwise
