"""Presentations: what a slide shows is read, and a part that cannot be read costs a line, not the file."""

import io
import zipfile

import pytest
from made_files import with_member, zipped
from office_files import pptx, saved
from test_word_documents import CHART
from word_files import SPACES, with_parts

from localctx.library.read_document import Document, read_document

SLIDE = "ppt/slides/slide1.xml"


@pytest.fixture
def read(tmp_path, parsed_here):
    def read(data: bytes) -> Document:
        (tmp_path / "a.pptx").write_bytes(data)
        return read_document(str(tmp_path / "a.pptx"))

    return read


def slide(document: Document, label: str) -> str:
    span = next(s for s in document.spans if (s.kind, s.label) == ("slide", label))
    return document.text[span.start : span.end].strip()


def shape(paragraphs: str, more: str = "") -> str:
    return f'<p:sp><p:nvSpPr><p:cNvPr id="9" name="x"{more}/></p:nvSpPr><p:txBody>{paragraphs}</p:txBody></p:sp>'


def line(text: str, properties: str = "") -> str:
    return f"<a:p>{properties}<a:r><a:t>{text}</a:t></a:r></a:p>"


def frame(content: str) -> str:
    graphic = f'<a:graphic><a:graphicData uri="x">{content}</a:graphicData></a:graphic>'
    return f"<p:graphicFrame><p:nvGraphicFramePr/>{graphic}</p:graphicFrame>"


def added(content: str, relations=None, members=None) -> bytes:
    return with_parts(content, relations=relations or {}, members=members or {})


def test_line_breaks_separate_words_everywhere(read):
    from pptx import Presentation

    made = Presentation()
    one = made.slides.add_slide(made.slide_layouts[1])
    one.shapes.title.text, one.placeholders[1].text = "Annual\vReport", "Harbour master\vIngrid Sund"
    one.notes_slide.notes_text_frame.text = "Say hello\vSmile"
    made.slides.add_slide(made.slide_layouts[6]).shapes.add_table(1, 2, 0, 0, 9, 9).table.cell(
        0, 0
    ).text = "North\vPier"
    document = read(saved(made))
    assert slide(document, "1") == "Annual Report\n\nHarbour master\nIngrid Sund\n\nNotes: Say hello\nSmile"
    assert slide(document, "2") == "North Pier"
    assert [s.label for s in document.spans if s.kind == "heading"] == ["Annual Report"]


def test_hidden_slides_and_shapes_are_left_out_and_told(read):
    document = read(added(shape(line("hidden"), ' hidden="1"') + shape(line("shown"))))
    assert slide(document, "1") == "All rivers\n\nA talk\n\nshown"
    assert document.row.unread_lines == ("a hidden shape on slide 1", "the hidden slide 4")


ART = (
    "<dgm:dataModel {}><dgm:ptLst><dgm:pt modelId='0' type='doc'/><dgm:pt modelId='2'><dgm:t><a:p><a:r>"
    "<a:t>Harbour</a:t>"
    "</a:r></a:p></dgm:t></dgm:pt><dgm:pt modelId='1'><dgm:t><a:p><a:r><a:t>Office</a:t></a:r></a:p></dgm:t></dgm:pt>"
    "<dgm:pt modelId='3'><dgm:t><a:p><a:r><a:t>Pilots</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst><dgm:cxnLst>"
    "<dgm:cxn srcId='0' destId='1' srcOrd='0'/><dgm:cxn srcId='0' destId='2' srcOrd='1'/>"
    "<dgm:cxn srcId='2' destId='3'/>"
    "</dgm:cxnLst></dgm:dataModel>"
)
CHART_OF_2016 = (
    "<x:chartSpace xmlns:x='http://schemas.microsoft.com/office/drawing/2014/chartex' {}><x:chartData><x:data id='0'>"
    "<x:strDim><x:lvl><x:pt idx='0'>Rent</x:pt><x:pt idx='1'>Fees</x:pt></x:lvl></x:strDim><x:numDim>"
    "<x:lvl><x:pt idx='0'>"
    "120</x:pt><x:pt idx='1'>-7.5</x:pt></x:lvl></x:numDim></x:data></x:chartData><x:chart><x:title>"
    "<x:tx><x:rich><a:p><a:r>"
    "<a:t>Income</a:t></a:r></a:p></x:rich></x:tx></x:title><x:plotArea><x:plotAreaRegion>"
    "<x:series layoutId='waterfall'>"
    "<x:tx><x:txData><x:v>2025</x:v></x:txData></x:tx><x:dataId val='0'/></x:series></x:plotAreaRegion>"
    "</x:plotArea></x:chart>"
    "</x:chartSpace>"
)


def test_charts_of_unknown_types_and_smart_art_are_read(read):
    choice, other = "<mc:Choice Requires='cx1'>{}</mc:Choice>", "<mc:Fallback>{}</mc:Fallback>"
    new = f"<mc:AlternateContent>{choice}{other}</mc:AlternateContent>"
    shown = (
        frame('<c:chart r:id="chart"/>')
        + new.format(frame('<c:chart r:id="new"/>'), shape(line("This chart is not available.")))
        + frame('<dgm:relIds r:dm="art"/>')
    )
    relations = {"chart": ("chart", "c.xml"), "new": ("chartEx", "n.xml"), "art": ("diagramData", "d.xml")}
    members = {"ppt/slides/c.xml": CHART.format(SPACES), "ppt/slides/n.xml": CHART_OF_2016.format(SPACES)}
    document = read(added(shown, relations, {**members, "ppt/slides/d.xml": ART.format(SPACES)}))
    assert slide(document, "1").split("\n\n")[2:] == [
        *("Rain", "\tMill\nMay\nJune\t2.5", "Income", "\t2025\nRent\t120\nFees\t-7.5", "Office\nHarbour\n  Pilots"),
    ]
    assert document.row.unread == "the hidden slide 4"


def test_what_cannot_be_read_costs_a_line(read):
    shown = (
        frame('<c:chart r:id="lost"/>')
        + frame('<dgm:relIds r:dm="art"/>')
        + frame('<p:oleObj progId="Excel.Sheet.12"/>')
        + "<p:pic><p:nvPicPr><p:cNvPr id='8' name='x' descr='A mill'/></p:nvPicPr></p:pic>"
        + "<p:pic><p:nvPicPr><p:cNvPr id='8' name='x'/></p:nvPicPr></p:pic>"
        + shape(line("and the rest"))
    )
    document = read(added(shown, {"art": ("diagramData", "d.xml")}, {"ppt/slides/d.xml": "no xml"}))
    assert slide(document, "1") == "All rivers\n\nA talk\n\nPicture: A mill\n\nand the rest"
    assert document.row.unread_lines == (
        *("the chart on slide 1", "the SmartArt graphic on slide 1", "the embedded object (Excel.Sheet.12) on slide 1"),
        *("the hidden slide 4", "pictures on slide 1"),
    )


@pytest.mark.parametrize("damaged", ["", "no xml", "<p:sld"])
def test_a_damaged_slide_costs_itself(read, damaged):
    document = read(with_member(pptx(), SLIDE, damaged))
    assert "slide 1" in document.row.unread_lines
    assert slide(document, "2").startswith("Long ones")


def test_a_missing_slide_chart_and_notes_cost_themselves(read):
    with zipfile.ZipFile(io.BytesIO(pptx())) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    lost = [name for name in files if "/charts/chart" in name or name == SLIDE or "notesSlides/notesSlide" in name]
    document = read(zipped({name: data for name, data in files.items() if name not in lost}))
    assert document.row.unread_lines == (
        *("slide 1", "the notes of slide 2", "the chart on slide 3", "the hidden slide 4"),
    )
    assert slide(document, "3") == "cell 0\tcell 1\ncell 2\tcell 3\n\nin a group"


def test_merged_cells_numbers_fields_and_equations(read):
    def cell(text: str, merge: str = "") -> str:
        return f"<a:tc {merge}><a:txBody>{line(text)}</a:txBody></a:tc>"

    rows = [
        cell("Region") + cell("Rent", 'gridSpan="2"') + cell("", 'hMerge="1"'),
        cell("North", 'rowSpan="2"') + cell("Halmar") + cell("10"),
        cell("", 'vMerge="1"') + cell("Olmen") + cell("20"),
    ]
    table = frame(f"<a:tbl>{''.join(f'<a:tr>{row}</a:tr>' for row in rows)}</a:tbl>")
    auto, deep = '<a:buAutoNum type="alphaLcParenR"/>', '<a:buAutoNum type="romanUcPeriod" startAt="3"/>'
    numbered = "".join(
        line(text, f'<a:pPr lvl="{n}">{auto if n == 0 else deep}</a:pPr>')
        for text, n in (("one", 0), ("sub", 1), ("two", 0))
    )
    day, place = (
        '<a:fld type="{}"><a:t>{}</a:t></a:fld>'.format(*of) for of in (("datetime1", "4 May"), ("slidenum", "7"))
    )
    date = f"<a:p><a:r><a:t>On </a:t></a:r>{day}{place}</a:p>"
    half = "".join(f"<m:{part}><m:r><m:t>{sign}</m:t></m:r></m:{part}>" for part, sign in (("num", "a"), ("den", "2")))
    equation = f"<mc:Choice><m:oMath><m:f>{half}</m:f></m:oMath></mc:Choice>"
    formula = f"<a:p><a:r><a:t>so</a:t></a:r><mc:AlternateContent>{equation}</mc:AlternateContent></a:p>"
    document = read(added(table + shape(numbered) + shape(date + formula)))
    assert slide(document, "1").split("\n\n")[2:] == [
        *("Region\tRent\nNorth\tHalmar\t10\nNorth\tOlmen\t20", "a) one\nIII. sub\nb) two", "On 4 May\nso a/2")
    ]


OLD = '<p:cmLst {}><p:cm authorId="0" idx="1"><p:text>Too long?</p:text></p:cm></p:cmLst>'
NEW = (
    '<x:cmLst xmlns:x="x" {}><x:cm authorId="B"><x:replyLst><x:reply authorId="0"><x:txBody>'
    "<a:p><a:r><a:t>Yes.</a:t></a:r></a:p></x:txBody></x:reply></x:replyLst>"
    "<x:txBody><a:p><a:r><a:t>Is it?</a:t></a:r></a:p>"
    "</x:txBody></x:cm></x:cmLst>"
)
AUTHORS = '<p:cmAuthorLst {}><p:cmAuthor id="0" name="Ann Lee"/><p:cmAuthor id="B" name="Bo"/></p:cmAuthorLst>'


@pytest.mark.parametrize(
    ("comments", "told"),
    [(OLD, ["Comment by Ann Lee: Too long?"]), (NEW, ["Comment by Bo: Is it?", "Comment by Ann Lee: Yes."])],
)
def test_comments_are_named_as_such(read, comments, told):
    data = added(
        "",
        {"c": ("comments", "c.xml")},
        {"ppt/slides/c.xml": comments.format(SPACES), "ppt/a.xml": AUTHORS.format(SPACES)},
    )
    listed = "ppt/_rels/presentation.xml.rels"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        relations = archive.read(listed).decode()
    authors = '<Relationship Id="au" Type="x/commentAuthors" Target="a.xml"/></Relationships>'
    document = read(with_member(data, listed, relations.replace("</Relationships>", authors)))
    assert slide(document, "1").split("\n\n")[2:] == told
