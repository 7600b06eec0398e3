"""OpenDocument files made of a report, by odfpy."""

from collections.abc import Iterator
from typing import Any

from known_words.office_makers import in_sheets, on_slides, saved, sheets
from known_words.source import Made, Section, Source, headings, report


def make(source: Source) -> Iterator[Made]:
    """The report as .odt, .odp and .ods."""
    document = report(source, "heading", headings(source), free=source.running)
    yield Made(f"{source.script}.odt", "odfpy", odt(source), document)
    yield Made(f"{source.script}.odp", "odfpy", odp(source), on_slides(source))
    yield Made(f"{source.script}.ods", "odfpy", ods(source), in_sheets(source))


def odt(source: Source) -> bytes:
    """Headings, lists, a table with a header, a footnote, a section of two columns."""
    from odf import opendocument, style, text

    made = opendocument.OpenDocumentText()
    numbers, columns = text.ListStyle(name="Numbers"), style.Style(name="Two", family="section")
    numbers.addElement(text.ListLevelStyleNumber(level=1, numformat="1", numsuffix="."))
    properties = style.SectionProperties()
    properties.addElement(style.Columns(columncount=2, columngap="0.5cm"))
    columns.addElement(properties)
    page, cell = style.Style(name="Page", family="paragraph"), style.Style(name="Cell", family="table-cell")
    page.addElement(style.ParagraphProperties(breakbefore="page"))
    cell.addElement(style.TableCellProperties(padding="0.1cm"))
    for one in (numbers, columns, page, cell):
        made.automaticstyles.addElement(one)
    if source.rtl:
        _turn_odf_around(made)
    made.text.addElement(text.H(outlinelevel=1, text=source.title))
    for number, section in enumerate(source.sections):
        more = {"stylename": page} if number else {}
        made.text.addElement(text.H(outlinelevel=2, text=section.heading, **more))
        where = made.text
        if number == 3:
            where = text.Section(name="Columns", stylename=columns)
            made.text.addElement(where)
        paragraphs = [text.P(text=one) for one in section.paragraphs]
        if number == 0:
            paragraphs[0].addElement(_odf_note(source.note))
        for element in (*paragraphs, *_odf_lists(section, numbers), *_odf_table(section, stylename=cell)):
            where.addElement(element)
    return saved(made)


def _turn_odf_around(made: Any) -> None:
    """Let every paragraph be written from right to left."""
    from odf import style

    default = style.DefaultStyle(family="paragraph")
    default.addElement(style.ParagraphProperties(writingmode="rl-tb", textalign="start"))
    made.styles.addElement(default)


def _odf_note(note: str) -> Any:
    from odf import text

    made, body = text.Note(noteclass="footnote"), text.NoteBody()
    made.addElement(text.NoteCitation(text="1"))
    body.addElement(text.P(text=note))
    made.addElement(body)
    return made


def _odf_lists(section: Section, numbers: Any) -> Iterator[Any]:
    from odf import text

    for texts, kind in ((section.bullets, {}), (section.steps, {"stylename": numbers})):
        made = text.List(**kind)
        for one in texts:
            item = text.ListItem()
            item.addElement(text.P(text=one))
            made.addElement(item)
        if texts:
            yield made


def _odf_table(section: Section, **more: Any) -> Iterator[Any]:
    """The section's table, if it has one; ``more`` is the style of its cells."""
    from odf import table, text

    if not section.header:
        return
    made, head = table.Table(name="Goods"), table.TableHeaderRows()
    made.addElement(table.TableColumn(numbercolumnsrepeated=len(section.header)))
    made.addElement(head)
    for number, texts in enumerate((section.header, *section.rows)):
        row = table.TableRow()
        for one in texts:
            cell = table.TableCell(valuetype="string", **more)
            cell.addElement(text.P(text=one))
            row.addElement(cell)
        (made if number else head).addElement(row)
    yield made


def ods(source: Source) -> bytes:
    """Two sheets: the table, and numbered duties."""
    from odf import opendocument, table, text

    made = opendocument.OpenDocumentSpreadsheet()
    for name, rows in sheets(source).items():
        sheet = table.Table(name=name)
        made.spreadsheet.addElement(sheet)
        for values in rows:
            row = table.TableRow()
            sheet.addElement(row)
            for value in values:
                kind = {"valuetype": "string"} if isinstance(value, str) else {"valuetype": "float", "value": value}
                cell = table.TableCell(**kind)
                cell.addElement(text.P(text=str(value)))
                row.addElement(cell)
    return saved(made)


def odp(source: Source) -> bytes:
    """A slide of the title, then one of each section, the note as speaker's notes of the first."""
    from odf import draw, opendocument, presentation, style, text

    made = opendocument.OpenDocumentPresentation()
    layout, numbers = style.PageLayout(name="layout"), text.ListStyle(name="Numbers")
    numbers.addElement(text.ListLevelStyleNumber(level=1, numformat="1", numsuffix="."))
    master = style.MasterPage(name="master", pagelayoutname=layout)
    made.automaticstyles.addElement(layout)
    made.automaticstyles.addElement(numbers)
    made.masterstyles.addElement(master)
    for number, section in enumerate((None, *source.sections)):
        page = draw.Page(masterpagename=master)
        made.presentation.addElement(page)
        page.addElement(_frame("title", [text.P(text=section.heading if section else source.title)]))
        if section:
            lines = [text.P(text=one) for one in section.paragraphs]
            page.addElement(_frame("outline", [*lines, *_odf_lists(section, numbers)]))
            for table in _odf_table(section):
                frame = draw.Frame(width="20cm", height="8cm", x="2cm", y="9cm")
                frame.addElement(table)
                page.addElement(frame)
        if number == 1:
            notes = presentation.Notes()
            notes.addElement(_frame("notes", [text.P(text=source.note)]))
            page.addElement(notes)
    return saved(made)


def _frame(kind: str, content: list[Any]) -> Any:
    from odf import draw

    made, box = draw.Frame(width="20cm", height="3cm"), draw.TextBox()
    made.setAttrNS("urn:oasis:names:tc:opendocument:xmlns:presentation:1.0", "class", kind)
    for element in content:
        box.addElement(element)
    made.addElement(box)
    return made
