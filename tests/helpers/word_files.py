"""Word and PowerPoint files of parts written by hand, for what python-docx and python-pptx cannot write."""

import io
import zipfile
from collections.abc import Mapping

from made_files import zipped
from office_files import pptx

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SPACES = " ".join(
    f'xmlns:{prefix}="{uri}"'
    for prefix, uri in {
        "w": W,
        "r": "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
        "c": "http://schemas.openxmlformats.org/drawingml/2006/chart",
        "dgm": "http://schemas.openxmlformats.org/drawingml/2006/diagram",
        "p": "http://schemas.openxmlformats.org/presentationml/2006/main",
        "pic": "http://schemas.openxmlformats.org/drawingml/2006/picture",
        "wp": "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
        "v": "urn:schemas-microsoft-com:vml",
        "o": "urn:schemas-microsoft-com:office:office",
    }.items()
)
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_ROOTS = {"numbering": "numbering", "styles": "styles", "footnotes": "footnotes", "endnotes": "endnotes"}
_ROOTS |= {"comments": "comments", "settings": "settings", "header1": "hdr", "footer1": "ftr"}


def word(body: str, more: Mapping[str, str | bytes] | None = None, **parts: str) -> bytes:
    """A Word file. ``parts`` are what is in ``word/NAME.xml``, such as ``numbering``; ``more`` are whole members.

    The relation to each part has the part's name as its id.
    """
    members: dict[str, str | bytes] = {
        "word/document.xml": f"<w:document {SPACES}><w:body>{body}</w:body></w:document>",
    }
    members |= {f"word/{n}.xml": f"<w:{_ROOTS[n]} {SPACES}>{text}</w:{_ROOTS[n]}>" for n, text in parts.items()}
    types = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType="{_TYPE}.{name.rstrip("1")}+xml"/>' for name in parts
    )
    related = {name: f"{_RELATIONS}/{name.rstrip('1')}" for name in parts}
    for name in more or {}:
        if name.endswith(".xml"):
            related[name.rpartition("/")[2].removesuffix(".xml")] = f"{_RELATIONS}/chart"
    listed = "".join(
        f'<Relationship Id="{n}" Type="{t}" Target="{_target(n, parts, more)}"/>' for n, t in related.items()
    )
    office = f'<Relationship Id="a" Type="{_RELATIONS}/officeDocument" Target="word/document.xml"/>'
    xmlns = "http://schemas.openxmlformats.org/package/2006"
    fixed = {
        "[Content_Types].xml": f'<Types xmlns="{xmlns}/content-types"><Default Extension="rels" ContentType="'
        'application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{_TYPE}.document.main+xml"/>{types}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{xmlns}/relationships">{office}</Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{xmlns}/relationships">{listed}</Relationships>',
    }
    return zipped({**fixed, **members, **(more or {})})


def _target(name: str, parts: Mapping[str, str], more: Mapping[str, str | bytes] | None) -> str:
    whole = next((one for one in more or {} if one.endswith(f"/{name}.xml")), "")
    return f"{name}.xml" if name in parts else f"/{whole}"


def p(content: str, properties: str = "") -> str:
    """A paragraph: text, or runs and other elements."""
    runs = content if content.startswith("<") or not content else run(content)
    return f"<w:p>{f'<w:pPr>{properties}</w:pPr>' if properties else ''}{runs}</w:p>"


def run(text: str, properties: str = "") -> str:
    """A run of text."""
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def row(*cells: str) -> str:
    """A table row of cells, each of paragraphs, perhaps after ``<w:tcPr>``."""
    return f"<w:tr>{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr>"


def numbered(level: int, instance: int = 1) -> str:
    """The properties of a paragraph in a list."""
    return f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{instance}"/></w:numPr>'


def level(index: int, form: str, text: str, more: str = "") -> str:
    """A level of a list definition."""
    printed = f'<w:numFmt w:val="{form}"/>{more}<w:lvlText w:val="{text}"/>'
    return f'<w:lvl w:ilvl="{index}"><w:start w:val="1"/>{printed}</w:lvl>'


def with_parts(slide: str, *, relations: Mapping[str, tuple[str, str]], members: Mapping[str, str | bytes]) -> bytes:
    """The made presentation with shapes added to slide 1.

    ``relations``: by their ids, the kind and the target of parts that the slide names; ``members``: the parts.
    """
    with zipfile.ZipFile(io.BytesIO(pptx())) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name, listed = "ppt/slides/slide1.xml", "ppt/slides/_rels/slide1.xml.rels"
    files[name] = files[name].replace(b"</p:spTree>", f"<p:grpSp {SPACES}>{slide}</p:grpSp></p:spTree>".encode())
    added = "".join(
        f'<Relationship Id="{key}" Type="{_RELATIONS}/{kind}" Target="{target}"/>'
        for key, (kind, target) in relations.items()
    )
    files[listed] = files[listed].replace(b"</Relationships>", f"{added}</Relationships>".encode())
    return zipped({**files, **members})
