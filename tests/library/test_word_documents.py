"""Word documents are read as they are printed: numbers, notes, final text, boxes, cells, fields, equations, symbols."""

import pytest
from made_files import with_member
from word_files import level, numbered, p, row, run, word

from localctx.library.read_document import Document, read_document


@pytest.fixture
def read(tmp_path, parsed_here):
    def read(data: bytes) -> Document:
        (tmp_path / "a.docx").write_bytes(data)
        return read_document(str(tmp_path / "a.docx"))

    return read


def headings(document: Document) -> list[str]:
    return [span.label for span in document.spans if span.kind == "heading"]


def section_of(document: Document, words: str) -> str:
    at = document.text.index(words)
    return next(s.label for s in document.spans if s.kind == "heading" and s.start <= at < s.end)


# Automatic numbers

LEGAL = (
    '<w:abstractNum w:abstractNumId="0">'
    + level(0, "decimal", "%1.", '<w:pStyle w:val="Clause"/>')
    + level(1, "decimal", "%1.%2")
    + level(2, "lowerLetter", "(%3)")
    + level(3, "lowerRoman", "%4)")
    + '</w:abstractNum><w:abstractNum w:abstractNumId="1">'
    + level(0, "upperRoman", "Article %1 –")  # noqa: RUF001
    + level(1, "decimalZero", "§ %1.%2", "<w:isLgl/>")
    + level(2, "ordinal", "%3", '<w:lvlRestart w:val="0"/>')
    + '</w:abstractNum><w:abstractNum w:abstractNumId="2">'
    + level(0, "bullet", "\uf0b7")
    + level(1, "none", "")
    + '</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
    '<w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num><w:num w:numId="3"><w:abstractNumId w:val="2"/></w:num>'
    '<w:num w:numId="4"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/>'
    "</w:lvlOverride></w:num>"
)
STYLES = (
    '<w:style w:type="paragraph" w:default="1" w:styleId="N"><w:name w:val="Normal"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="Clause"><w:name w:val="heading 1"/><w:pPr><w:numPr><w:numId w:val="1"/>'
    '</w:numPr><w:outlineLvl w:val="0"/></w:pPr></w:style>'
    '<w:style w:type="paragraph" w:styleId="Sub"><w:basedOn w:val="Clause"/><w:name w:val="Sub"/><w:pPr>'
    '<w:numPr><w:ilvl w:val="1"/></w:numPr><w:outlineLvl w:val="9"/></w:pPr></w:style>'
    '<w:style w:type="character" w:styleId="Secret"><w:name w:val="Secret"/><w:rPr><w:vanish/></w:rPr></w:style>'
)
CLAUSE, SUB = '<w:pStyle w:val="Clause"/>', '<w:pStyle w:val="Sub"/>'


def test_clauses_have_the_numbers_that_are_printed(read):
    body = [
        p("Supply", CLAUSE),
        p("By barge.", SUB),
        p("by day", numbered(2)),
        p("at noon", numbered(3)),
        p("at one", numbered(3)),
        p("by night", numbered(2)),
        p("Payment", CLAUSE),
        p("In crowns.", SUB),
        p("No number.", f'{SUB}<w:numPr><w:numId w:val="0"/></w:numPr>'),
        p("in coins", numbered(2)),
    ]
    document = read(word("".join(body), numbering=LEGAL, styles=STYLES))
    assert document.text.split("\n\n") == [
        *("1. Supply", "1.1 By barge.", "(a) by day", "i) at noon", "ii) at one", "(b) by night"),
        *("2. Payment", "2.1 In crowns.", "No number.", "(a) in coins"),
    ]
    assert headings(document) == ["1. Supply", "2. Payment"]


def test_other_lists_restart_continue_and_have_forms_of_their_own(read):
    lists = [(0, 2), (1, 2), (2, 2), (0, 2), (1, 2), (2, 2), (0, 4), (0, 1), (0, 3), (1, 3), (5, 1)]
    document = read(word("".join(p(f"x{i}", numbered(*one)) for i, one in enumerate(lists)), numbering=LEGAL))
    assert document.text.split("\n\n") == [
        *("Article I – x0", "§ 1.1 x1", "1st x2", "Article II – x3", "§ 2.1 x4", "2nd x5"),  # noqa: RUF001
        *("7. x6", "8. x7", "• x8", "x9", "x10"),
    ]


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("lowerLetter", "z aa bb"),
        ("upperLetter", "Z AA BB"),
        ("russianLower", "ы э ю"),
        ("chineseCounting", "二十六 二十七 二十八"),
        ("decimalZero", "26 27 28"),
        ("ordinal", "26th 27th 28th"),
        ("somethingNew", "26 27 28"),
    ],
)
def test_numbers_after_the_end_of_an_alphabet(read, form, printed):
    numbering = f'<w:abstractNum w:abstractNumId="0">{level(0, form, "%1")}</w:abstractNum>'
    numbering += '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
    text = read(word("".join(p("x", numbered(0)) for _ in range(28)), numbering=numbering)).text
    assert [line.split()[0] for line in text.split("\n\n")][25:] == printed.split()


# Final text


def test_hidden_text_is_left_out_and_told(read):
    body = p(run("shown ") + run("hidden", "<w:vanish/>") + run("seen", '<w:vanish w:val="0"/>'))
    body += p(run("secret", '<w:rStyle w:val="Secret"/>')) + p("after")
    document = read(word(body, styles=STYLES))
    assert (document.text, document.row.unread) == ("shown seen\n\nafter", "hidden text")


def test_tracked_changes_are_read_as_accepted(read):
    who = 'w:id="1" w:author="A"'
    gone = f"<w:rPr><w:del {who}/></w:rPr>"
    body = [
        p(
            run("rent ")
            + f"<w:del {who}><w:r><w:delText>1200</w:delText></w:r></w:del><w:ins {who}>{run('1450')}</w:ins>"
        ),
        p(f"<w:moveFrom {who}>{run('moved')}</w:moveFrom>", f"<w:rPr><w:moveFrom {who}/></w:rPr>"),
        p("deposit is two ", gone),
        p("months, ", gone),
        p("not three."),
        p(f"<w:moveTo {who}>{run('moved')}</w:moveTo>"),
        "<w:tbl>"
        + row(p("a"), p("b"))
        + row(p("x"), p("y")).replace("<w:tr>", f"<w:tr><w:trPr><w:del {who}/></w:trPr>")
        + "</w:tbl>",
    ]
    assert read(word("".join(body))).text == "rent 1450\n\ndeposit is two months, not three.\n\nmoved\n\na\tb"


# Notes and comments


def note(kind: str, number: int, text: str) -> str:
    return f'<w:{kind} w:id="{number}">{p(f"<w:r><w:{kind}Ref/></w:r>" + run(f" {text}"))}</w:{kind}>'


def call(kind: str, number: int) -> str:
    return f'<w:r><w:{kind}Reference w:id="{number}"/></w:r>'


def test_notes_and_comments_are_cited_where_they_are_called(read):
    body = p(run("Tower") + call("footnote", 2), CLAUSE) + p(run("One bell") + call("footnote", 3) + run(" rings."))
    body += p(run("Square") + call("endnote", 2), CLAUSE) + p(run("Basalt.") + call("comment", 0)) + p("River", CLAUSE)
    document = read(
        word(
            body,
            styles=STYLES,
            footnotes='<w:footnote w:id="0" w:type="separator"><w:p/></w:footnote>'
            + note("footnote", 2, "Of 1650.")
            + note("footnote", 3, "Cast by Moll."),
            endnotes=note("endnote", 2, "Paved twice."),
            comments=f'<w:comment w:id="0" w:author="Ann Lee">{p("Is it?")}</w:comment>',
        )
    )
    assert document.text.split("\n\n") == [
        *("Tower", "Footnote 1: Of 1650.", "One bell rings.", "Footnote 2: Cast by Moll."),
        *("Square", "Endnote i: Paved twice.", "Basalt.", "Comment by Ann Lee: Is it?", "River"),
    ]
    assert headings(document) == ["Tower", "Square", "River"]
    assert section_of(document, "Cast by Moll") == "Tower"
    assert section_of(document, "Paved twice") == "Square"


def test_notes_are_numbered_as_the_document_says_and_those_of_deleted_text_are_gone(read):
    settings = '<w:footnotePr><w:numFmt w:val="upperLetter"/><w:numStart w:val="3"/></w:footnotePr>'
    body = p(run("a") + call("footnote", 2)) + p(f"<w:del>{call('footnote', 3)}</w:del>{run('b')}")
    notes = note("footnote", 2, "kept") + note("footnote", 3, "struck out") + note("footnote", 4, "never called")
    document = read(word(body, footnotes=notes, settings=settings))
    assert document.text == "a\n\nFootnote C: kept\n\nb\n\nnever called"


def test_a_damaged_part_costs_itself_and_a_line(read):
    data = word(p(run("One bell") + call("footnote", 2)) + p("After."), footnotes=note("footnote", 2, "Cast."))
    for damaged in ("", "no xml", "<w:footnotes"):
        document = read(with_member(data, "word/footnotes.xml", damaged))
        assert (document.text, document.row.unread) == ("One bell\n\nAfter.", "the footnotes")
    half = read(
        with_member(word(""), "word/document.xml", f"<w:document xmlns:w='w'><w:body>{p('One.')}<w:p><w:r><w:t>Tw")
    )
    assert half.text == "One.\n\nTw"
    assert half.row.unread == "some of the text (it is damaged)"


def test_headers_and_footers_are_read_once_and_under_no_heading(read):
    section = '<w:sectPr><w:headerReference w:type="{}" r:id="header1"/>'
    section += '<w:footerReference w:type="default" r:id="footer1"/></w:sectPr>'
    body = p("Lease", CLAUSE) + p("One.", section.format("default")) + p("Two.") + section.format("default")
    document = read(word(body, styles=STYLES, header1=p("Office of Halmar"), footer1=p("3")))
    assert document.text == "Lease\n\nOne.\n\nTwo.\n\nHeader: Office of Halmar"
    assert all(span.end <= document.text.index("Header") for span in document.spans)
    assert read(word(body.replace('"default" r:id="h', '"first" r:id="h'), header1=p("x"))).text.endswith("Two.")


# Boxes, cells and drawings


def box(content: str) -> str:
    inside = f"<w:txbxContent>{content}</w:txbxContent>"
    return (
        f'<w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wp:anchor><a:graphic><a:graphicData><wps:wsp>'
        f"<wps:txbx>{inside}</wps:txbx></wps:wsp></a:graphicData></a:graphic></wp:anchor></w:drawing></mc:Choice>"
        f"<mc:Fallback><w:pict><v:shape><v:textbox>{inside}</v:textbox></v:shape></w:pict></mc:Fallback>"
        f"</mc:AlternateContent></w:r>"
    )


def test_a_text_box_follows_its_paragraph_once(read):
    body = p(run("The ") + box(p("Box one.") + p("Box two.")) + run("tower"), CLAUSE) + p(
        run("It ") + box(p("Aside.")) + run("rings.")
    )
    document = read(word(body, styles=STYLES))
    assert document.text == "The tower\n\nBox one.\n\nBox two.\n\nIt rings.\n\nAside."
    assert headings(document) == ["The tower"]


def merged(kind: str) -> str:
    return f'<w:tcPr><w:vMerge w:val="{kind}"/></w:tcPr>'


def test_every_row_knows_its_group_and_is_one_line(read):
    table = (
        row(p("Region"), p("Town"), p("Rent"))
        + row(merged("restart") + p("North"), p("Halmar"), p("<w:r><w:t>10</w:t><w:br/><w:t>crowns</w:t></w:r>"))
        + row(merged("continue") + p(""), p("Olmen") + p("(harbour)"), p("20"))
        + row(p("South"), p(""), p("30"))
        + row('<w:tcPr><w:gridSpan w:val="2"/></w:tcPr>' + p("Sum"), p("60"))
    )
    assert read(word(f"<w:tbl>{table}</w:tbl>")).text.split("\n") == [
        *("Region\tTown\tRent", "North\tHalmar\t10 crowns", "North\tOlmen (harbour)\t20", "South\t\t30", "Sum\t\t60")
    ]


def test_a_table_in_a_cell_and_a_frame_keep_their_paragraphs(read):
    inner = f"<w:tbl>{row(p('a'), p('b'))}{row(p('c'), p('d'))}</w:tbl>"
    outer = f"<w:tbl>{row(p('before') + inner + p('after'), p('beside'))}</w:tbl>"
    frame = f"<w:tbl>{row(p('In a frame', CLAUSE) + p('Words.'))}</w:tbl>"
    document = read(word(outer + frame, styles=STYLES))
    assert document.text == "before\n\na\tb\nc\td\n\nafter\n\nbeside\n\nIn a frame\n\nWords."
    assert headings(document) == ["In a frame"]


def picture(described: str) -> str:
    return (
        f'<w:r><w:drawing><wp:inline><wp:docPr id="1" name="P" {described}/><a:graphic><a:graphicData><pic:pic/>'
        f"</a:graphicData></a:graphic></wp:inline></w:drawing></w:r>"
    )


CHART = (
    "<c:chartSpace {}><c:chart><c:title><c:tx><c:rich><a:p><a:r><a:t>Rain</a:t></a:r></a:p></c:rich></c:tx></c:title>"
    "<c:plotArea><c:neverSeenChart><c:ser><c:tx><c:v>Mill</c:v></c:tx><c:cat><c:strLit><c:pt idx='0'><c:v>May</c:v>"
    "</c:pt><c:pt idx='1'><c:v>June</c:v></c:pt></c:strLit></c:cat><c:val><c:numRef><c:numCache><c:pt idx='1'>"
    "<c:v>2.50</c:v></c:pt></c:numCache></c:numRef></c:val></c:ser></c:neverSeenChart></c:plotArea></c:chart></c:chartSpace>"
)


def test_pictures_charts_and_objects_are_read_or_told(read):
    from word_files import SPACES

    chart = (
        '<w:r><w:drawing><a:graphic><a:graphicData><c:chart r:id="{}"/></a:graphicData></a:graphic></w:drawing></w:r>'
    )
    ole = '<w:r><w:object><v:shape><v:imagedata/></v:shape><o:OLEObject ProgID="Excel.Sheet.12"/></w:object></w:r>'
    body = (
        p("Mill", CLAUSE)
        + p(picture('descr="A mill at dusk"') + picture('descr="mill_2.PNG"'))
        + p(chart.format("chart1"))
    )
    body += p(chart.format("lost")) + p(ole) + '<w:altChunk r:id="x"/>' + p("End.")
    document = read(word(body, {"word/charts/chart1.xml": CHART.format(SPACES)}, styles=STYLES))
    assert document.text == "Mill\n\nPicture: A mill at dusk\n\nRain\n\n\tMill\nMay\nJune\t2.5\n\nEnd."
    assert document.row.unread_lines == (
        *("the chart under “Mill”", "the embedded object (Excel.Sheet.12) under “Mill”"),
        *("a file inserted as a whole under “Mill”", "a picture"),
    )


# Runs


def field(instruction: str, result: str | None, form: str = "") -> str:
    def mark(kind: str, inside: str = "") -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}">{inside}</w:fldChar></w:r>'

    code = f"<w:r><w:instrText>{instruction}</w:instrText></w:r>"
    shown = "" if result is None else mark("separate") + run(result)
    return mark("begin", form and f"<w:ffData>{form}</w:ffData>") + code + shown + mark("end")


CHOICES = '<w:ddList><w:result w:val="1"/><w:listEntry w:val="monthly"/><w:listEntry w:val="yearly"/></w:ddList>'


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (run("see page ") + field("PAGEREF x", "17") + run("."), "see page 17."),
        (
            field("IF " + "x", "due").replace(
                "<w:instrText>IF x", f"<w:t>not shown</w:t></w:r>{field('Y', 'inner')}<w:r><w:instrText>"
            ),
            "due",
        ),
        (run("paid ") + field("FORMDROPDOWN", None, CHOICES), "paid yearly"),
        (field("FORMCHECKBOX", None, '<w:checkBox><w:checked w:val="1"/></w:checkBox>') + run(" pets"), "[x] pets"),
        (field("FORMCHECKBOX", None, '<w:checkBox><w:default w:val="0"/></w:checkBox>') + run(" pets"), "[ ] pets"),
        (
            f"<w:sdt><w:sdtPr><w:dropDownList/></w:sdtPr><w:sdtContent>{run('Ann Lee')}</w:sdtContent></w:sdt>",
            "Ann Lee",
        ),
        ("<w:r><w:t>AB</w:t><w:noBreakHyphen/><w:t>12 co</w:t><w:softHyphen/><w:t>op</w:t></w:r>", "AB-12 coop"),
        ('<w:r><w:sym w:font="Symbol" w:char="F061"/><w:t> = 2</w:t></w:r>', "α = 2"),  # noqa: RUF001
        ('<w:r><w:sym w:font="Wingdings" w:char="F0FE"/><w:t> yes</w:t></w:r>', "☑ yes"),
        (run("\uf0a3", '<w:rFonts w:ascii="Symbol"/>') + run(" 5"), "≤ 5"),
        (
            "<w:r><w:ruby><w:rt><w:r><w:t>さ</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>佐</w:t></w:r></w:rubyBase></w:ruby></w:r>",
            "佐",
        ),
        (f"<w:smartTag>{run('in ')}<w:hyperlink>{run('a link')}</w:hyperlink></w:smartTag>", "in a link"),
        ('<w:fldSimple w:instr="DATE"><w:r><w:t>4 May</w:t></w:r></w:fldSimple>', "4 May"),
        ('<w:r><w:pict><v:shape><v:textpath string="DRAFT"/></v:shape></w:pict></w:r>', "DRAFT"),
    ],
)
def test_what_a_paragraph_prints(read, content, text):
    assert read(word(p(content))).text == text


def test_a_symbol_that_no_letter_stands_for_is_told(read):
    document = read(word(p('<w:r><w:t>a</w:t><w:sym w:font="Odd Font" w:char="F09A"/></w:r>')))
    assert (document.text, document.row.unread) == ("a", "the symbol F09A of the font Odd Font")


def r(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def e(text: str, name: str = "e") -> str:
    return f"<m:{name}>{text if text.startswith('<') else r(text)}</m:{name}>"


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        (f"<m:f>{e('a+b', 'num')}{e('2', 'den')}</m:f>", "(a+b)/2"),
        (f"{r('E=m')}<m:sSup>{e('c')}{e('2', 'sup')}</m:sSup>", "E=mc^2"),
        (f"<m:sSub>{e('a')}{e('n', 'sub')}</m:sSub>{r('cos')}", "a_n cos"),
        (f"<m:sSubSup>{e('x')}{e('i+1', 'sub')}{e('2', 'sup')}</m:sSubSup>", "x_(i+1)^2"),
        (f'<m:rad><m:radPr><m:degHide m:val="1"/></m:radPr><m:deg/>{e("x+1")}</m:rad>', "√(x+1)"),
        (
            f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>{e("i=1", "sub")}{e("n", "sup")}{e("i")}</m:nary>',
            "∑_(i=1)^n i",
        ),
        (f"<m:d>{e('a')}{e('b')}</m:d>", "(a|b)"),
        (f"<m:m><m:mr>{e('1')}{e('0')}</m:mr><m:mr>{e('0')}{e('1')}</m:mr></m:m>", "[1, 0; 0, 1]"),
        (f"<m:func>{e('sin', 'fName')}{e('x')}</m:func>", "sin x"),
        (f"<m:limLow>{e('lim')}{e('x→0', 'lim')}</m:limLow>", "lim_(x→0)"),
    ],
)
def test_equations_are_a_line_of_text(read, equation, text):
    document = read(word(p(f"{run('so')}<m:oMath>{equation}</m:oMath>{run('holds')}")))
    assert document.text == f"so {text} holds"
