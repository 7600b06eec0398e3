"""OpenDocument texts and presentations are read as they are printed, as Word and PowerPoint files are."""

import pytest
from made_files import with_member, zipped
from office_files import odp, odt

from localctx.library.read_document import Document, read_document

SPACES = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for prefix, name in {
        **{"office": "office", "text": "text", "table": "table", "style": "style", "draw": "drawing", "form": "form"},
        **{"chart": "chart", "presentation": "presentation", "svg": "svg-compatible"},
    }.items()
)
SPACES += ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xlink="x" xmlns:math="m" xml:lang="en"'


def content(body: str, automatic: str = "", kind: str = "text") -> str:
    styles = f"<office:automatic-styles>{automatic}</office:automatic-styles>"
    inside = f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    return f"<office:document-content {SPACES}>{styles}{inside}</office:document-content>"


def made(body: str, automatic: str = "", kind: str = "text", styles: str = "", **more: str) -> bytes:
    whole = f"<office:document-styles {SPACES}>{styles}</office:document-styles>"
    mimetype = f"application/vnd.oasis.opendocument.{kind}"
    members = {"mimetype": mimetype, "content.xml": content(body, automatic, kind), "styles.xml": whole}
    return zipped({**members, **{name.replace("__", "/") + ".xml": text for name, text in more.items()}})


@pytest.fixture
def read(tmp_path):
    def read(data: bytes) -> Document:
        (tmp_path / "a.odt").write_bytes(data)
        return read_document(str(tmp_path / "a.odt"))

    return read


def p(text: str, style: str = "") -> str:
    return f'<text:p text:style-name="{style}">{text}</text:p>'


def items(*contents: str, of: str = "L", more: str = "") -> str:
    listed = "".join(f"<text:list-item>{one}</text:list-item>" for one in contents)
    return f'<text:list text:style-name="{of}" {more}>{listed}</text:list>'


def number_level(level: int, form: str, more: str = "", kind: str = "list-level-style-number") -> str:
    return f'<text:{kind} text:level="{level}" style:num-format="{form}" {more}/>'


LEVELS = (
    number_level(1, "1", 'style:num-suffix="."')
    + number_level(2, "1", 'text:display-levels="2"')
    + number_level(3, "a", 'style:num-prefix="(" style:num-suffix=")"')
)
LISTS = (
    f'<text:list-style style:name="L">{LEVELS}</text:list-style><text:list-style style:name="B">'
    '<text:list-level-style-bullet text:level="1" text:bullet-char="*"/></text:list-style>'
    f'<text:list-style style:name="R">{number_level(1, "I", """text:start-value="4" """)}</text:list-style>'
)
OUTLINE_LEVELS = LEVELS.replace("list-level-style-number", "outline-level-style")
OUTLINE = f"<office:styles><text:outline-style>{OUTLINE_LEVELS}</text:outline-style></office:styles>"


def test_lists_and_headings_have_the_numbers_that_are_printed(read):
    nested = items(p("by day"), p("by night") + items(p("at noon"), p("at one"), of=""), of="")
    body = (
        '<text:h text:outline-level="1">Supply</text:h><text:h text:outline-level="2">Barges</text:h>'
        '<text:h text:outline-level="1" text:is-list-header="true">Annex</text:h>'
        + items(p("first") + p("still first"), p("second") + nested, more='xml:id="one"')
        + p("between")
        + items(p("third"), more='text:continue-list="one"')
        + items(p("new"))
        + items(p("a mark"), of="B")
        + items(p("an article"), p("another"), of="R")
        + items(p("seven")).replace("<text:list-item>", '<text:list-item text:start-value="7">')
    )
    document = read(made(body, LISTS, styles=OUTLINE))
    assert document.text.split("\n\n") == [
        *("1. Supply", "1.1 Barges", "Annex", "1. first", "still first", "2. second", "2.1 by day", "2.2 by night"),
        *(
            "(a) at noon",
            "(b) at one",
            "between",
            "3. third",
            "1. new",
            "• a mark",
            "IV an article",
            "V another",
            "7. seven",
        ),
    ]
    assert [s.label for s in document.spans if s.kind == "heading"] == ["1. Supply", "1.1 Barges", "Annex"]


HIDDEN = (
    '<style:style style:name="H" style:family="text"><style:text-properties text:display="none"/></style:style>'
    '<style:style style:name="H2" style:family="text" style:parent-style-name="H"/>'
    '<style:style style:name="HP" style:family="paragraph"><style:text-properties text:display="none"/></style:style>'
)


@pytest.mark.parametrize(
    "hidden",
    [
        '<text:p>kept<text:span text:style-name="H2"> secret</text:span></text:p>',
        "<text:p>kept</text:p>" + p("secret", "HP"),
        '<text:p>kept</text:p><text:section text:display="none"><text:p>secret</text:p></text:section>',
        "<text:p>kept<text:hidden-text> secret</text:hidden-text></text:p>",
        '<text:p>kept</text:p><text:p><text:hidden-paragraph text:is-hidden="true"/>secret</text:p>',
    ],
)
def test_hidden_text_is_left_out_and_told(read, hidden):
    document = read(made(hidden, HIDDEN))
    assert (document.text, document.row.unread) == ("kept", "hidden text")


def test_deleted_text_ruby_breaks_and_spaces(read):
    deleted = "<text:changed-region><text:deletion><text:p>gone</text:p></text:deletion></text:changed-region>"
    tracked = f"<text:tracked-changes>{deleted}</text:tracked-changes>"
    ruby = "<text:ruby><text:ruby-base>佐</text:ruby-base><text:ruby-text>さ</text:ruby-text></text:ruby>"
    choice = (
        '<text:drop-down><text:label text:value="monthly"/><text:label text:value="yearly"/>yearly</text:drop-down>'
    )
    body = p(f"one<text:line-break/>two \n  three<text:s text:c='2'/><text:tab/>{ruby} co\xadop ") + p(f"paid {choice}")
    assert read(made(tracked + body)).text == "one\ntwo three  \t佐 coop\n\npaid yearly"


def test_notes_comments_and_boxes_follow_their_paragraph(read):
    inside = "<text:note-citation>{1}</text:note-citation><text:note-body>{2}</text:note-body>"
    note = f'<text:note text:note-class="{{0}}">{inside}</text:note>'
    comment = "<office:annotation><dc:creator>Ann Lee</dc:creator><text:p>Is it?</text:p></office:annotation>"
    box = f"<draw:frame><draw:text-box>{p('In a box.')}</draw:text-box></draw:frame>"
    body = f'<text:h text:outline-level="1">Tower{note.format("footnote", 1, p("Of 1650."))}</text:h>'
    body += (
        p(f"One {box}bell{comment}{note.format('endnote', 'i', p('Cast.'))} rings.")
        + '<text:h text:outline-level="1">River</text:h>'
    )
    document = read(made(body))
    assert document.text.split("\n\n") == [
        *("Tower", "Footnote 1: Of 1650.", "One bell rings.", "In a box.", "Comment by Ann Lee: Is it?"),
        *("Endnote i: Cast.", "River"),
    ]
    assert [s.label for s in document.spans if s.kind == "heading"] == ["Tower", "River"]


def cell(text: str, more: str = "") -> str:
    return f"<table:table-cell {more}>{text}</table:table-cell>"


def rows(*lines: str) -> str:
    return f"<table:table>{''.join(f'<table:table-row>{line}</table:table-row>' for line in lines)}</table:table>"


def test_every_row_knows_its_group(read):
    covered = "<table:covered-table-cell/>"
    table = rows(
        cell(p("Region")) + cell(p("Town")) + cell(p("Rent")),
        cell(p("North"), 'table:number-rows-spanned="2"') + cell(p("Halmar<text:line-break/>Harbour")) + cell(p("10")),
        covered + cell(p("Olmen") + p("Mill")) + cell(p("20")),
        cell(p("Sum"), 'table:number-columns-spanned="2"') + covered + cell(p("30")),
    )
    assert read(made(table)).text.split("\n") == [
        *("Region\tTown\tRent", "North\tHalmar Harbour\t10", "North\tOlmen Mill\t20", "Sum\t\t30")
    ]


def test_rows_and_cells_that_the_file_writes_once_are_repeated(read):
    mark = cell(p("x"), 'table:number-columns-repeated="3"')
    table = rows(cell(p("a")) + mark, cell("", 'table:number-columns-repeated="900"'), cell(p("End")))
    table = table.replace("<table:table-row>", '<table:table-row table:number-rows-repeated="2">')
    assert read(made(table)).text == "a\tx\tx\tx\na\tx\tx\tx\nEnd\nEnd"


def test_a_comment_without_an_author_has_no_name(read):
    for author in ("", "<dc:creator/>", "<dc:creator> </dc:creator>"):
        comment = f"<office:annotation>{author}<text:p>Is it?</text:p></office:annotation>"
        assert read(made(p(f"One{comment} bell."))).text == "One bell.\n\nComment: Is it?"


@pytest.mark.parametrize("name", ["image1.png", "DSC_0042.JPG", "logo.svg"])
def test_the_name_of_a_file_describes_no_picture(read, name):
    document = read(made(p("One.") + framed("<draw:image/>", name)))
    assert (document.text, document.row.unread) == ("One.", "a picture")


def framed(inside: str, described: str = "") -> str:
    return p(f"<draw:frame>{inside}{described and f'<svg:desc>{described}</svg:desc>'}</draw:frame>")


def test_charts_formulas_and_pictures_are_read_or_told(read):
    def of(name: str) -> str:
        return framed(f'<draw:object xlink:href="./{name}"/><draw:image/>')

    chart = rows(cell("") + cell(p("Mill")), cell(p("May")) + cell(p("2.5")))
    chart = f"<chart:chart><chart:title>{p('Rain')}</chart:title>{chart}</chart:chart>"
    formula = "<math:math><math:mi>x</math:mi><math:annotation>x = {a} over {2}</math:annotation></math:math>"
    body = of("C") + of("F") + of("lost") + framed("<draw:image/>", "A mill at dusk") + framed("<draw:image/>")
    document = read(
        made(body, C__content=content(chart, kind="chart"), F__content=formula.replace(">", f" {SPACES}>", 1))
    )
    assert document.text == "Rain\n\n\tMill\nMay\t2.5\n\nx = {a} over {2}\n\nPicture: A mill at dusk"
    assert document.row.unread_lines == ("the embedded object", "a picture")


def test_form_values_headers_and_footers(read):
    forms = (
        '<office:forms><form:form><form:text form:id="a" form:current-value="Ann"/><form:checkbox form:id="b" '
        'form:current-state="checked"/><form:listbox form:id="c"><form:option form:label="no"/>'
        '<form:option form:label="yes" '
        'form:current-selected="true"/></form:listbox></form:form></office:forms>'
    )
    controls = [f'<draw:control draw:control="{name}"/>' for name in "abc"]
    header = p("Halmar <text:page-number>3</text:page-number>")
    page = f"<style:header>{header}</style:header><style:footer>{p('3')}</style:footer>"
    styles = f"<office:master-styles><style:master-page>{page}</style:master-page></office:master-styles>"
    body = forms + p(f"Tenant {controls[0]}, pets {controls[1]}, {controls[2]}.")
    assert read(made(body, styles=styles)).text == "Tenant Ann, pets [x], yes.\n\nHeader: Halmar 3"


def test_slides_hidden_commented_and_with_tables(read):
    hidden = '<style:drawing-page-properties presentation:visibility="hidden"/>'
    hidden = f'<style:style style:name="d" style:family="drawing-page">{hidden}</style:style>'
    comment = "<office:annotation><dc:creator>Bo</dc:creator><text:p>Short?</text:p></office:annotation>"
    title = "<draw:text-box><text:p>All<text:line-break/>rivers</text:p></draw:text-box>"
    title = f'<draw:frame presentation:class="title">{title}</draw:frame>'
    shape = f"<draw:g><draw:custom-shape>{p('In a shape')}</draw:custom-shape></draw:g>"
    grid = f"<draw:frame>{rows(cell(p('a')) + cell(p('b')))}<draw:image/></draw:frame>"
    notes = (
        f'<presentation:notes><draw:frame presentation:class="page-number">{p("9")}</draw:frame></presentation:notes>'
    )
    body = (
        f'<draw:page draw:style-name="d">{shape}</draw:page><draw:page>{shape}{grid}{title}{comment}{notes}</draw:page>'
    )
    document = read(made(body, hidden, "presentation"))
    assert document.text == "All rivers\n\nIn a shape\n\na\tb\n\nComment by Bo: Short?"
    assert [(s.kind, s.label) for s in document.spans] == [("slide", "2"), ("heading", "All rivers")]
    assert document.row.unread == "the hidden slide 1"


@pytest.mark.parametrize("data", [odt(), odp()])
def test_damaged_styles_cost_a_line(read, data):
    document = read(with_member(data, "styles.xml", "no xml"))
    assert "ivers" in document.text
    assert document.row.unread_lines[0] == "the styles"


def test_the_rest_of_a_damaged_text_is_read(read):
    document = read(with_member(odt(), "content.xml", content(p("One") + p("Two"))[:-60]))
    assert (document.text, document.row.unread) == ("One\n\nTwo", "some of the text (it is damaged)")
