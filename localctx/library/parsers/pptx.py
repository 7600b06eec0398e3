"""Reads a presentation's text slide by slide: title, text boxes, tables, charts, notes. Runs in the child process.

Gives python-pptx a copy of the file without pictures and videos, which it would load. Leaves out hidden slides.
"""

import io
from collections.abc import Callable, Iterator
from typing import Any

from pptx import Presentation

from localctx.library.parsers.archive import Archive
from localctx.library.parsers.text_builder import TextBuilder


def read(archive: Archive, progress: Callable[[int, int], None]) -> TextBuilder:
    """Returns the presentation's text. Raises DocumentError, and python-pptx's errors for damaged files."""
    data = archive.repacked(lambda name: name.endswith((".xml", ".rels")))
    slides, builder = Presentation(io.BytesIO(data)).slides, TextBuilder()
    for number, slide in enumerate(slides, 1):
        if slide.element.get("show") not in ("0", "false"):
            builder.mark("slide", str(number))
            _slide(slide, builder)
        progress(number, len(slides))
    return builder


def _slide(slide: Any, builder: TextBuilder) -> None:
    title = slide.shapes.title
    if title is not None and title.text_frame.text.strip():
        builder.begin_heading()
        builder.words(title.text_frame.text)
        builder.end_heading()
    else:
        builder.mark("heading", "")
    for shape in _shapes(slide.shapes):
        if title is None or shape.shape_id != title.shape_id:
            _shape(shape, builder)
    notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    if notes is not None and notes.text.strip():
        builder.line(2)
        builder.words("Notes: ")
        _paragraphs(notes, builder)
    builder.line(2)


def _shapes(shapes: Any) -> Iterator[Any]:
    """Yields the shapes in order, with groups expanded."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape


def _shape(shape: Any, builder: TextBuilder) -> None:
    builder.line(2)
    if shape.has_text_frame:
        _paragraphs(shape.text_frame, builder)
    elif getattr(shape, "has_table", False):
        for row in shape.table.rows:
            _row((cell.text for cell in row.cells), builder)
    elif getattr(shape, "has_chart", False):
        _chart(shape.chart, builder)


def _paragraphs(frame: Any, builder: TextBuilder) -> None:
    for paragraph in frame.paragraphs:
        builder.words(paragraph.text)
        builder.line()


def _chart(chart: Any, builder: TextBuilder) -> None:
    """Append a chart as a table: a row of series names, then a row for each category."""
    if chart.has_title and chart.chart_title.has_text_frame:
        _paragraphs(chart.chart_title.text_frame, builder)
    for plot in chart.plots:
        series = list(plot.series)
        _row(("", *(one.name for one in series)), builder)
        for i, category in enumerate(plot.categories):
            values = (one.values[i] if i < len(one.values) else None for one in series)
            _row((category, *("" if value is None else f"{value:.15g}" for value in values)), builder)


def _row(cells: Any, builder: TextBuilder) -> None:
    for cell in cells:
        builder.words(" ".join(str(cell).split()))
        builder.cell()
    builder.line()
