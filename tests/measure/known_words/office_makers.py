"""Files of office programs made of a report: by python-docx, python-pptx, openpyxl, XlsxWriter and xlwt."""

import io
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from known_words.source import Known, Made, Place, Section, Source, headings, report, words

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_FOOTNOTES = (
    '<w:footnotes xmlns:w="{w}"><w:footnote w:type="separator" w:id="-1"><w:p><w:r><w:separator/></w:r></w:p>'
    '</w:footnote><w:footnote w:id="1"><w:p><w:r><w:footnoteRef/></w:r><w:r><w:t xml:space="preserve"> {note}</w:t>'
    "</w:r></w:p></w:footnote></w:footnotes>"
)
_FOOTNOTES_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
_RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"


def make(source: Source) -> Iterator[Made]:
    """The report as .docx, .pptx and .xlsx, and as .xls where xlwt is installed."""
    name = source.script
    document = report(source, "heading", headings(source), free=source.running)
    yield Made(f"{name}.docx", "python-docx", docx(source), document)
    yield Made(f"{name}.pptx", "python-pptx", pptx(source), on_slides(source))
    yield Made(f"{name}.xlsx", "openpyxl", xlsx(source), in_sheets(source))
    yield Made(f"{name}.xlsx", "XlsxWriter", xlsx_in_strings(source), in_sheets(source))
    if find_spec("xlwt"):
        yield Made(f"{name}.xls", "xlwt", xls(source), in_sheets(source))


def on_slides(source: Source) -> Known:
    """What a presentation says: a slide of the title, and one of each section; the note is said with the first."""
    return report(source, "slide", [str(number) for number in range(2, 6)])


def in_sheets(source: Source) -> Known:
    """What a workbook says: a sheet of the table, and one of numbered duties."""
    body = [str(value) for rows in sheets(source).values() for row in rows for value in row]
    names = list(sheets(source))
    planted = zip((source.planted[2], source.planted[1]), names, strict=True)
    places = tuple(p for word, name in planted for p in (Place(word, "heading", name), Place(word, "row", "2")))
    return Known(words(*body), [], frozenset(words(*names, *source.table.header)), places)


def goods(source: Source) -> list[list[Any]]:
    """The rows of the table, the header first; numbers are numbers."""
    return [source.table.header, *([*row[:2], int(row[2]), float(row[3])] for row in source.table.rows)]


def duties(source: Source) -> list[list[Any]]:
    """Rows of a number and a text, under two names of columns."""
    section = source.sections[1]
    texts = [*section.paragraphs, *section.bullets, *section.steps]
    return [source.table.header[2:0:-1], *([number, text] for number, text in enumerate(texts, 101))]


# --- Word


def docx(source: Source) -> bytes:
    """Headings, lists and a table in Word's own styles, a footnote, a running head, page numbers, two columns."""
    from docx import Document
    from docx.enum.section import WD_SECTION

    made = Document()
    made.sections[0].header.paragraphs[0].text = source.running
    _add_page_number(made.sections[0].footer.paragraphs[0])
    made.styles["Heading 1"].paragraph_format.page_break_before = True
    made.add_heading(source.title, 0)
    for number, section in enumerate(source.sections):
        heading = made.add_heading(section.heading, 1)
        heading.paragraph_format.page_break_before = bool(number)
        if number == 3:
            _set_columns(made.add_section(WD_SECTION.CONTINUOUS), 2)
        first, *_ = [made.add_paragraph(text) for text in section.paragraphs]
        if number == 0:
            _add_footnote(made, first, source.note)
        for style, texts in (("List Bullet", section.bullets), ("List Number", section.steps)):
            for text in texts:
                made.add_paragraph(text, style)
        _add_table(made, section)
    if source.rtl:
        _turn_around(made)
    return saved(made)


def _add_table(made: Any, section: Section) -> None:
    if section.header:
        table = made.add_table(0, len(section.header), "Table Grid")
        for row in (section.header, *section.rows):
            for cell, text in zip(table.add_row().cells, row, strict=True):
                cell.text = text


def _set_columns(section: Any, count: int) -> None:
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    for old in section._sectPr.findall(qn("w:cols")):
        section._sectPr.remove(old)
    columns = OxmlElement("w:cols")
    columns.set(qn("w:num"), str(count))
    section._sectPr.append(columns)


def _add_page_number(paragraph: Any) -> None:
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    number = OxmlElement("w:fldSimple")
    number.set(qn("w:instr"), "PAGE")
    paragraph._p.append(number)


def _add_footnote(made: Any, paragraph: Any, note: str) -> None:
    """Add a part of footnotes, which python-docx does not write, and call its only one at the paragraph's end."""
    from docx.opc.packuri import PackURI
    from docx.opc.part import Part
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    xml = _FOOTNOTES.format(w=_W, note=note).encode()
    made.part.relate_to(Part(PackURI("/word/footnotes.xml"), _FOOTNOTES_TYPE, xml, made.part.package), _RELATED)
    call = OxmlElement("w:footnoteReference")
    call.set(qn("w:id"), "1")
    run = paragraph.add_run()
    run.font.superscript = True
    run._r.append(call)


def _turn_around(made: Any) -> None:
    """Mark every paragraph, run and table as written from right to left."""
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    for paragraph in made.element.body.iter(qn("w:p")):
        paragraph.get_or_add_pPr().append(OxmlElement("w:bidi"))
        for run in paragraph.iter(qn("w:r")):
            run.get_or_add_rPr().append(OxmlElement("w:rtl"))
    for table in made.tables:
        table._tbl.tblPr.append(OxmlElement("w:bidiVisual"))


# --- PowerPoint and Excel


def pptx(source: Source) -> bytes:
    """A slide of the title, then one of each section, the note as speaker's notes of the first."""
    from pptx import Presentation
    from pptx.util import Pt

    made = Presentation()
    made.slides.add_slide(made.slide_layouts[0]).shapes.title.text = source.title
    for number, section in enumerate(source.sections):
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text = section.heading
        frame = slide.placeholders[1].text_frame
        lines = [(text, "") for text in (*section.paragraphs, *section.bullets)]
        for i, (text, automatic) in enumerate([*lines, *((step, "arabicPeriod") for step in section.steps)]):
            paragraph = frame.paragraphs[0] if i == 0 else frame.add_paragraph()
            paragraph.text, paragraph.font.size = text, Pt(14)
            if source.rtl:
                paragraph._p.get_or_add_pPr().attrib.update({"rtl": "1", "algn": "r"})
            if automatic:
                _number_automatically(paragraph, automatic)
        if section.header:
            _add_slide_table(slide, section, source.rtl)
        if number == 0:
            slide.notes_slide.notes_text_frame.text = source.note
    return saved(made)


def _number_automatically(paragraph: Any, form: str) -> None:
    from pptx.oxml import parse_xml

    a = "http://schemas.openxmlformats.org/drawingml/2006/main"
    paragraph._p.get_or_add_pPr().append(parse_xml(f'<a:buAutoNum xmlns:a="{a}" type="{form}"/>'))


def _add_slide_table(slide: Any, section: Section, rtl: bool) -> None:
    from pptx.util import Cm

    rows = [section.header, *section.rows]
    table = slide.shapes.add_table(len(rows), len(section.header), Cm(2), Cm(9), Cm(20), Cm(8)).table
    table._tbl.tblPr.set("rtl", str(int(rtl)))
    for cell, text in zip(table.iter_cells(), (text for row in rows for text in row), strict=True):
        cell.text = text


def xlsx(source: Source) -> bytes:
    """Two sheets: the table, and numbered duties."""
    import openpyxl

    made = openpyxl.Workbook()
    made.remove(made.active)
    for name, rows in sheets(source).items():
        sheet = made.create_sheet(name)
        for row in rows:
            sheet.append(row)
    return saved(made)


def xlsx_in_strings(source: Source) -> bytes:
    """The same, its texts in the workbook's table of strings."""
    import xlsxwriter

    with xlsxwriter.Workbook(buffer := io.BytesIO()) as made:
        for name, rows in sheets(source).items():
            sheet = made.add_worksheet(name)
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
    return buffer.getvalue()


def xls(source: Source) -> bytes:
    """The same in Excel's format from before 2007."""
    import xlwt

    made = xlwt.Workbook()
    for name, rows in sheets(source).items():
        sheet = made.add_sheet(name)
        for at, row in enumerate(rows):
            for column, value in enumerate(row):
                sheet.write(at, column, value)
    return saved(made)


def sheets(source: Source) -> dict[str, list[list[Any]]]:
    """The rows of each sheet, by its name."""
    return {source.table.heading: goods(source), source.sections[1].heading: duties(source)}


def saved(made: Any) -> bytes:
    """The bytes that a library saves."""
    made.save(buffer := io.BytesIO())
    return buffer.getvalue()
