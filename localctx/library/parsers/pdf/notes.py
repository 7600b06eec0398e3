"""Reads the annotations of a PDF page: values of form fields, text boxes and comments.

PDFium's text of a page has none of these. Values are read from the fields, because many fields have no drawn
appearance.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import pypdfium2
from pypdfium2 import raw

from localctx.library.parsers.pdf.letters import DisplayMap, Edges

_HIDDEN = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
_TICKS = {raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON}
_CHOICES = {raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX}
_SILENT = {raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP, raw.FPDF_ANNOT_WIDGET}  # a popup shows its comment's text
_PASSWORD = 1 << 13  # flag of a text field
_MAX_NOTES = 5_000  # notes of a page
_MAX_OPTIONS = 1_000  # options of a choice field


class PageNote(NamedTuple):
    """A text that is laid over a page, such as an annotation, with its box in points on the displayed page.

    ``kind`` is ``value`` (the value of a form field), ``tick`` (a check box or radio button), ``box`` (text written on
    the page) or ``comment``.
    """

    kind: Literal["value", "tick", "box", "comment"]
    text: str
    edges: Edges


def notes_of(
    pdf: pypdfium2.PdfDocument, page: pypdfium2.PdfPage, to_points: DisplayMap
) -> tuple[list[PageNote], list[str]]:
    """Returns the notes on a page, and a description of each annotation that cannot be read.

    Values of form fields are read only if the form of ``pdf`` was initialized before the page was opened. A description
    is the start of a line, such as ``a stamp on``; the caller adds the name of the page.
    """
    found, unread = list[PageNote](), list[str]()
    for i in range(min(_MAX_NOTES, max(0, raw.FPDFPage_GetAnnotCount(page)))):
        with _annotation(page, i) as annotation:
            flags = raw.FPDFAnnot_GetFlags(annotation) if annotation else _HIDDEN
            if not flags & _HIDDEN:
                edges, missing = _edges(annotation, to_points), list[str]()
                found += [PageNote(kind, text, edges) for kind, text in _texts(pdf, annotation, missing)]
                unread += missing
    return found, unread


@contextmanager
def _annotation(page: pypdfium2.PdfPage, i: int) -> Iterator[Any]:
    annotation = raw.FPDFPage_GetAnnot(page, i)
    try:
        yield annotation
    finally:
        if annotation:
            raw.FPDFPage_CloseAnnot(annotation)


def _edges(annotation: Any, to_points: DisplayMap) -> Edges:
    rect = raw.FS_RECTF()
    raw.FPDFAnnot_GetRect(annotation, ctypes.byref(rect))
    return to_points.edges(rect.left, rect.bottom, rect.right, rect.top)


def _texts(pdf: pypdfium2.PdfDocument, annotation: Any, unread: list[str]) -> Iterator[tuple[Any, str]]:
    """Yields the kind and text of an annotation.

    If the text is only drawn, or if the annotation is an attached file, adds a description of the annotation to
    ``unread`` instead.
    """
    kind = raw.FPDFAnnot_GetSubtype(annotation)
    if kind == raw.FPDF_ANNOT_WIDGET:
        yield from _values(pdf, annotation)
    elif kind == raw.FPDF_ANNOT_FILEATTACHMENT:
        unread.append("a file attached to")
    elif kind not in _SILENT and not raw.FPDFAnnot_HasKey(annotation, b"StateModel"):
        text = _string(lambda *buffer: raw.FPDFAnnot_GetStringValue(annotation, b"Contents", *buffer)).strip()
        if text:
            yield ("box", text) if kind == raw.FPDF_ANNOT_FREETEXT else ("comment", text)
        elif kind in (raw.FPDF_ANNOT_FREETEXT, raw.FPDF_ANNOT_STAMP) and raw.FPDFAnnot_HasKey(annotation, b"AP"):
            unread.append("a text box on" if kind == raw.FPDF_ANNOT_FREETEXT else "a stamp on")


def _values(pdf: pypdfium2.PdfDocument, field: Any) -> Iterator[tuple[Any, str]]:
    """Yields the kind and the value of a form field. Yields nothing for buttons, signatures and passwords."""
    form = pdf.formenv
    kind = raw.FPDFAnnot_GetFormFieldType(form, field) if form else -1
    flags = raw.FPDFAnnot_GetFormFieldFlags(form, field) if form else 0
    if kind in _TICKS:
        yield "tick", "[x]" if raw.FPDFAnnot_IsChecked(form, field) else "[ ]"
    elif kind in _CHOICES and (chosen := _chosen(form, field)):
        yield "value", ", ".join(chosen)
    elif kind in _CHOICES or (kind == raw.FPDF_FORMFIELD_TEXTFIELD and not flags & _PASSWORD):
        text = _string(lambda *buffer: raw.FPDFAnnot_GetFormFieldValue(form, field, *buffer)).strip()
        if text:
            yield "value", text


def _chosen(form: Any, field: Any) -> list[str]:
    """Returns the labels of the selected options of a choice field."""
    options = range(min(_MAX_OPTIONS, max(0, raw.FPDFAnnot_GetOptionCount(form, field))))
    selected = [i for i in options if raw.FPDFAnnot_IsOptionSelected(form, field, i)]
    return [_string(lambda *buffer, i=i: raw.FPDFAnnot_GetOptionLabel(form, field, i, *buffer)) for i in selected]


def _string(read: Callable[..., int]) -> str:
    """Returns the text that a function of PDFium writes into a buffer of UTF-16."""
    length = read(None, 0)
    if length <= 2:
        return ""
    buffer = ctypes.create_string_buffer(length)
    read(ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), length)
    return buffer.raw.decode("utf-16-le", "replace").rstrip("\0").replace("\r\n", "\n").replace("\r", "\n")
