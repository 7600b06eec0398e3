"""Files of every format, made in memory: small, real, and as odd as a test wants them."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from urllib.parse import quote

CONTAINER = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'


def pdf(
    pages: Sequence[str],
    outline: Sequence[tuple[str, int]] = (),
    *,
    labels: str = "",
    count: int | None = None,
    trailer: str = "",
) -> bytes:
    """A PDF whose pages hold lines of Helvetica. ``outline``: titles and pages; ``count``: what it claims to hold."""
    bodies = [
        f"<</Type/Catalog/Pages 2 0 R{'/Outlines 4 0 R' if outline else ''}{labels}>>",
        f"<</Type/Pages/Kids[{' '.join(f'{page_object(i, outline)} 0 R' for i in range(len(pages)))}]"
        f"/Count {len(pages) if count is None else count}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        f"<</Type/Outlines/First 5 0 R/Last {4 + len(outline)} 0 R/Count {len(outline)}>>",
        *(_bookmark(i, outline) for i in range(len(outline))),
    ]
    for i, text in enumerate(pages):
        shown = (
            "BT /F1 12 Tf 14 TL 50 700 Td " + "".join(f"({escaped(line)}) Tj T* " for line in text.split("\n")) + "ET"
        )
        fonts = "/Resources<</Font<</F1 3 0 R>>>>"
        content = f"/Contents {page_object(i, outline) + 1} 0 R" if text else ""
        bodies.append(f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]{fonts}{content}>>")
        bodies.append(f"<</Length {len(shown)}>>stream\n{shown}\nendstream")
    return assembled(bodies, trailer)


def page_object(i: int, outline: Sequence[tuple[str, int]]) -> int:
    """The number of page ``i``'s object."""
    return 5 + len(outline) + 2 * i


def _bookmark(i: int, outline: Sequence[tuple[str, int]]) -> str:
    title, page = outline[i]
    following = f"/Next {6 + i} 0 R" if i + 1 < len(outline) else ""
    return f"<</Title({escaped(title)})/Parent 4 0 R/Dest[{page_object(page, outline)} 0 R/Fit]{following}>>"


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


def assembled(bodies: Sequence[str], trailer: str = "") -> bytes:
    """Objects numbered from 1, their table of places, and the trailer."""
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(bodies, 1):
        places.append(len(out))
        out += f"{number} 0 obj{body}endobj\n".encode("latin-1")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n{table}"
    return (
        bytes(out)
        + f"{head}trailer<</Size {len(bodies) + 1}/Root 1 0 R{trailer}>>\nstartxref\n{len(out)}\n%%EOF".encode()
    )


def docx(paragraphs: Sequence[tuple[str, str]] = (("Heading 1", "Rivers"), ("", "They are long."))) -> bytes:
    """A Word document of paragraphs: style (may be empty) and text."""
    import docx as python_docx

    document = python_docx.Document()
    for style, text in paragraphs:
        document.add_paragraph(text, style or None)
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def zipped(members: Mapping[str, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def with_member(archive: bytes, name: str, data: bytes | str) -> bytes:
    """The archive with one member replaced, or added."""
    with zipfile.ZipFile(io.BytesIO(archive)) as old:
        return zipped({n: old.read(n) for n in old.namelist()} | {name: data})


def epub(chapters: Mapping[str, str], more: Mapping[str, bytes | str] | None = None) -> bytes:
    """A book of chapters: file name and body."""
    items = "".join(f'<item id="c{i}" href="{quote(name)}"/>' for i, name in enumerate(chapters))
    spine = "".join(f'<itemref idref="c{i}"/>' for i in range(len(chapters)))
    package = f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>"
    files = {f"OEBPS/{name}": f"<html><body>{body}</body></html>" for name, body in chapters.items()}
    fixed = {"mimetype": "application/epub+zip", "META-INF/container.xml": CONTAINER, "OEBPS/book.opf": package}
    return zipped({**fixed, **files, **(more or {})})


def old_office(stream: str) -> bytes:
    """The beginning of an Office file from before 2007, or of a locked one, that has a stream of this name."""
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1000) + stream.encode("utf-16-le") + bytes(3000)
