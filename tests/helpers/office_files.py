"""Files of office programs and of mail, made in memory by the libraries that write them."""

import datetime
import io
import mailbox
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from pathlib import Path

PRESENTATION = "urn:oasis:names:tc:opendocument:xmlns:presentation:1.0"
MONDAY = "Mon, 04 May 2026 10:00:00 +0200"


def pptx() -> bytes:
    """Five slides: a title, bullets with notes, a table, a group and a chart without a title, a hidden one, a last."""
    from pptx import Presentation
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE

    made = Presentation()
    layouts = made.slide_layouts
    slide = made.slides.add_slide(layouts[0])
    slide.shapes.title.text, slide.placeholders[1].text = "All rivers", "A talk"
    slide = made.slides.add_slide(layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = "Long ones", "The Nile is long.\nThe Amazon is wide."
    slide.notes_slide.notes_text_frame.text = "The Nile has 6,650 km."
    shapes = made.slides.add_slide(layouts[6]).shapes
    for i, cell in enumerate(shapes.add_table(2, 2, 0, 0, 99, 99).table.iter_cells()):
        cell.text = f"cell {i}"
    shapes.add_group_shape().shapes.add_textbox(0, 0, 9, 9).text_frame.text = "in a group"
    chart = CategoryChartData()
    chart.categories = ["2024", "2025"]
    chart.add_series("Rain", (1.5, 2))
    shapes.add_chart(XL_CHART_TYPE.BAR_CLUSTERED, 0, 0, 9, 9, chart)
    hidden = made.slides.add_slide(layouts[5])
    hidden.shapes.title.text = "Hidden"
    hidden.element.set("show", "0")
    made.slides.add_slide(layouts[5]).shapes.title.text = "The end"
    return saved(made)


def xlsx(sheets: Mapping[str, Sequence[Sequence[object]]], hidden: Sequence[str] = ()) -> bytes:
    """A workbook of sheets, each of rows of values; None is an empty cell."""
    import openpyxl

    made = openpyxl.Workbook()
    made.remove(made.active)
    for name, rows in sheets.items():
        sheet = made.create_sheet(name)
        sheet.sheet_state = "hidden" if name in hidden else "visible"
        for row in rows:
            sheet.append(list(row))
    return saved(made)


def rents() -> bytes:
    """A workbook: a table with a title, an entry form, a table of years, and a hidden sheet."""
    day = datetime.date(2026, 5, 1)
    table = [["Rents"], [], ["Flat", "Rent", "From"], ["First", 1200.5, day], ["Second", 0.3, day], ["Third", 950, day]]
    form = [["Tenant", "Ann"], ["Rent", 1200], ["Start", day], ["Pets", True]]
    years = [[None, 2024, 2025], ["Income", 5, 6], ["Costs", 4, 3]]
    return xlsx({"Prices": table, "Form": form, "Years": years, "Lists": [["secret"]]}, hidden=["Lists"])


def ods() -> bytes:
    from odf import opendocument, table, text

    made = opendocument.OpenDocumentSpreadsheet()
    sheet = table.Table(name="Prices")
    for values in (("Flat", "Rent", "Due"), ("First", 1200, "May"), ("Second", 950, "June")):
        row = table.TableRow()
        for value in values:
            kind = {"valuetype": "float", "value": value} if isinstance(value, int) else {"valuetype": "string"}
            cell = table.TableCell(**kind)
            cell.addElement(text.P(text=str(value)))
            row.addElement(cell)
        sheet.addElement(row)
    made.spreadsheet.addElement(sheet)
    return saved(made)


def odt() -> bytes:
    from odf import office, opendocument, table, text

    made = opendocument.OpenDocumentText()
    made.text.addElement(text.H(outlinelevel=1, text="Rivers"))
    paragraph = text.P(text="They are")
    paragraph.addElement(text.S(c=2))
    paragraph.addElement(text.Span(text="long"))
    comment = office.Annotation()
    comment.addElement(text.P(text="not this"))
    paragraph.addElement(comment)
    note, body = text.Note(noteclass="footnote"), text.NoteBody()
    note.addElement(text.NoteCitation(text="1"))
    body.addElement(text.P(text="a note"))
    note.addElement(body)
    paragraph.addElement(note)
    paragraph.addText(" and wide.")
    paragraph.addElement(text.LineBreak())
    paragraph.addText("second")
    made.text.addElement(paragraph)
    grid = table.Table(name="T")
    for i in (0, 2):
        row = table.TableRow()
        for j in range(2):
            cell = table.TableCell()
            cell.addElement(text.P(text=f"cell {i + j}"))
            row.addElement(cell)
        grid.addElement(row)
    made.text.addElement(grid)
    made.text.addElement(text.P(text="End."))
    return saved(made)


def odp() -> bytes:
    """Three slides, the second without a title, the third with notes."""
    from odf import draw, opendocument, presentation, style, text

    made = opendocument.OpenDocumentPresentation()
    layout = style.PageLayout(name="layout")
    master = style.MasterPage(name="master", pagelayoutname=layout)
    made.automaticstyles.addElement(layout)
    made.masterstyles.addElement(master)

    def frame(kind: str, words: str) -> draw.Frame:
        made_frame, box = draw.Frame(width="9cm", height="2cm"), draw.TextBox()
        made_frame.setAttrNS(PRESENTATION, "class", kind)
        box.addElement(text.P(text=words))
        made_frame.addElement(box)
        return made_frame

    for title, words, said in (("All rivers", "A talk", ""), ("", "No title", ""), ("Long ones", "Nile.", "Slowly.")):
        page, notes = draw.Page(masterpagename=master), presentation.Notes()
        made.presentation.addElement(page)
        if title:
            page.addElement(frame("title", title))
        page.addElement(frame("outline", words))
        notes.addElement(frame("notes", said))
        page.addElement(notes)
    return saved(made)


def message(subject: str, body: str, **fields: str) -> EmailMessage:
    made = EmailMessage()
    made["Subject"] = subject
    for name, value in ({"From": "Ann Ö <ann@example.org>", "To": "bob@example.org", "Date": MONDAY} | fields).items():
        made[name] = value
    made.set_content(body)
    return made


def rent_message() -> EmailMessage:
    """A message in plain text and HTML, with a PDF and a text attached."""
    made = message("The rent for Mäy", "Hello Bob,\n\nthe rent is 1,200 EUR.\n")
    made.add_alternative("<p>other words</p>", subtype="html")
    made.add_attachment(bytes(1000), maintype="application", subtype="pdf", filename="lease.pdf")
    made.add_attachment("text of the note", filename="note.txt")
    return made


def forwarded() -> EmailMessage:
    """A message in HTML alone, which another is attached to."""
    made = message("Only HTML", "")
    made.set_content("<h1>Hello</h1><p>The deposit is <b>two</b> rents.</p>", subtype="html")
    made.add_attachment(rent_message())
    return made


def mbox(folder: Path, messages: Sequence[EmailMessage]) -> bytes:
    """A mailbox, as Python's mailbox module writes it to a file in ``folder``."""
    box = mailbox.mbox(folder / "made.mbox")
    for one in messages:
        box.add(one)
    box.close()
    return (folder / "made.mbox").read_bytes()


RTF = (
    rb"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset0 Calibri;}{\f1\fcharset204 Arial Cyr;}}"
    rb"{\stylesheet{\s1 heading 1;}}{\info{\title Not this}}\pard\s1\b Rivers\b0\par They are l\'f6ng \u8364? and\line"
    rb" wide.\par \f1\'d0\'e5\'ea\'e8\f0\par\trowd\intbl a\cell b\cell\row\trowd\intbl c\cell d\cell\row\pard "
    rb"{\pict\wmetafile8 " + b"ab" * 2000 + rb"}after \u-10179?\u-8704?\par}"
)


def saved(made: object) -> bytes:
    buffer = io.BytesIO()
    made.save(buffer)
    return buffer.getvalue()
