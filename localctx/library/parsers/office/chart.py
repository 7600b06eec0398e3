"""Reads charts of Office files as tables: a title, a row with the names of the series, then a row for each category.

The XML is read here: python-pptx fails on types that it does not know, and on the charts of Office 2016 (chartex).
"""

from collections.abc import Iterator

from localctx.library.parsers.office.blocks import Block, Cell, Paragraph, Table
from localctx.library.parsers.office.xml_tree import (
    Element,
    attribute,
    child,
    children,
    descendants,
    find,
    is_on,
    local,
    number,
)
from localctx.library.parsers.sheets.number_format import shown_cell

_MOST_POINTS = 100_000  # of one chart, against forged numbers
_AXES = {"catAx", "valAx", "dateAx", "serAx", "axis"}


def chart_blocks(root: Element) -> list[Block]:
    """Returns a chart as blocks: its title, the titles of its axes, and a table of its values. ``root`` is the element
    ``chartSpace``.
    """
    chart = find(root, "chart")
    blocks: list[Block] = [Paragraph(text) for text in _titles(chart) if text]
    series = [s for s in descendants(chart, "ser", "series") if local(s) == "ser" or attribute(s, "hidden") != "1"]
    for group in _groups(series):
        blocks.append(_table(group, root))
    return blocks


def _titles(chart: Element | None) -> Iterator[str]:
    yield _title(child(chart, "title"))
    for axis in descendants(chart, *_AXES):
        if title := _title(child(axis, "title")):
            yield f"Axis: {title}"


def _title(title: Element | None) -> str:
    paragraphs = (" ".join(words_of(p).split()) for p in descendants(title, "p"))
    text = " ".join(filter(None, paragraphs))
    return text or " ".join(one.text or "" for one in descendants(title, "v")).strip()


def words_of(paragraph: Element) -> str:
    """Returns the text of a DrawingML paragraph, with \\n for line breaks."""
    return "".join("\n" if local(one) == "br" else one.text or "" for one in descendants(paragraph, "t", "br"))


def _groups(series: list[Element]) -> Iterator[list[Element]]:
    """Yields the series of each plot. The series of one plot share their categories."""
    plots: dict[Element | None, list[Element]] = {}
    for one in series:
        plots.setdefault(one.getparent(), []).append(one)
    yield from plots.values()


def _table(series: list[Element], root: Element) -> Table:
    columns = [_points(one, root) for one in series]
    labels: dict[int, str] = {}
    for categories, _ in columns:
        labels |= {i: text for i, text in categories.items() if i not in labels}
    header = ["", *(_name(one) for one in series)]
    places = sorted({i for _, values in columns for i in values} | labels.keys())[:_MOST_POINTS]
    rows = [[labels.get(i, ""), *(values.get(i, "") for _, values in columns)] for i in places]
    return Table([[Cell([Paragraph(text)]) for text in row] for row in [header, *rows]])


def _name(series: Element) -> str:
    name = child(series, "tx")
    return " ".join((one.text or "").strip() for one in descendants(name, "v", "t"))


def _points(series: Element, root: Element) -> tuple[dict[int, str], dict[int, str]]:
    """Returns the categories and the values of a series. Both map the index of a point to a text."""
    if local(series) == "series":
        return _points_of_2016(series, root)
    categories = next(children(series, "cat", "xVal"), None)
    values = [_cached(one, root) for one in children(series, "val", "yVal", "bubbleSize")]
    joined = {i: "; ".join(v[i] for v in values if i in v) for i in {i for v in values for i in v}}
    return _cached(categories, root), joined


def _cached(source: Element | None, root: Element) -> dict[int, str]:
    """Returns the stored texts of a source by the index of the point. Labels of several levels are joined, the outer
    label first.
    """
    from_1904 = is_on(child(root, "date1904"))
    levels = [*descendants(source, "lvl")][::-1]  # the innermost level comes first in the file
    found: dict[int, list[str]] = {}
    for level in levels or [source]:
        points = {number(attribute(pt, "idx")): _value(pt, source, from_1904) for pt in descendants(level, "pt")}
        if levels and level is not levels[-1]:  # an outer label applies up to the next one
            points = _filled(points, len([*descendants(levels[-1], "pt")]))
        for place, text in points.items():
            found.setdefault(place, []).append(text)
    return {place: " ".join(texts) for place, texts in found.items()}


def _filled(points: dict[int, str], size: int) -> dict[int, str]:
    filled, last = {}, ""
    for place in range(min(size, _MOST_POINTS)):
        last = points.get(place, last)
        filled[place] = last
    return filled


def _value(point: Element, source: Element | None, from_1904: bool) -> str:
    value = child(point, "v")
    text = " ".join(((point if value is None else value).text or "").split())
    form = attribute(point, "formatCode") or getattr(find(source, "formatCode"), "text", "") or "General"
    if find(source, "numCache") is None and find(source, "numDim") is None:
        return text
    try:
        return shown_cell(float(text), form, from_1904).shown
    except (ValueError, OverflowError):
        return text


def _points_of_2016(series: Element, root: Element) -> tuple[dict[int, str], dict[int, str]]:
    wanted = attribute(child(series, "dataId"), "val")
    data = next((one for one in descendants(root, "data") if attribute(one, "id") == wanted), None)
    texts, numbers = child(data, "strDim"), child(data, "numDim")
    return _cached(texts, root), _cached(numbers, root)
