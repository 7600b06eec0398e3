"""Lists the parts of a PDF that are not read: attached files, and XFA forms, which PDFium cannot fill in."""

from collections.abc import Iterator
from contextlib import suppress

import pypdfium2
from pypdfium2 import raw

_MOST_FILES = 20  # that are named


def unread_parts(pdf: pypdfium2.PdfDocument) -> Iterator[str]:
    """Yields a line for each part of the PDF that is not read, to be shown to the user."""
    if pdf.get_formtype() == raw.FORMTYPE_XFA_FULL:
        yield "the form, which only Adobe Reader shows (XFA)"
    files = range(pdf.count_attachments())
    for i in files[:_MOST_FILES]:
        name = ""
        with suppress(pypdfium2.PdfiumError, ValueError):
            name = pdf.get_attachment(i).get_name()
        yield f"the attached file {name}".rstrip()
    if len(files) > _MOST_FILES:
        yield f"{len(files) - _MOST_FILES:,} more attached files"
