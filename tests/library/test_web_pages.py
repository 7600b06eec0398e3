"""Web pages and books: their text as a browser shows it, whichever way they are written."""

# ruff: noqa: RUF001 (signs that look alike, as documents have them)

import io
from zipfile import ZipFile

import pytest
from made_files import epub, with_member

from localctx.errors import DocumentError
from localctx.library.parsers import html
from localctx.library.parsers.text_builder import TextBuilder
from localctx.library.read_document import Document, read_document


def shown(page: str) -> str:
    html.read(page, builder := TextBuilder())
    return builder.done()[0]


@pytest.fixture
def read(tmp_path, parsed_here):
    def read(data: bytes, name: str) -> Document:
        (tmp_path / name).write_bytes(data)
        return read_document(str(tmp_path / name))

    return read


@pytest.mark.parametrize(
    "empty",
    [
        "<title/>",
        "<script src='x.js'/>",
        "<style />",
        "<iframe src='y'/>",
        "<textarea/>",
        "<div/>",
        "<a id='p1'/>",
        "<noscript/>",
        "<object data='z'/>",
        "<select/>",
    ],
)
def test_an_element_that_is_closed_at_once_ends_there(empty):
    xhtml = f"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><head>{empty}</head><body>{empty}<p>One&nbsp;{empty}two</p>"
    assert shown(f"{xhtml}<p>three</p></body></html>").split() == ["One", "two", "three"]
    assert shown(f"{xhtml}<p>& three</body></html>").split() == ["One", "two", "&", "three"]  # not well-formed


def test_entities_and_cdata_of_xhtml_are_read():
    assert shown("<html><p>caf&eacute; &lt; &#8364; <![CDATA[a < b]]></p></html>") == "café < € a < b"
    laughs = "".join(f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 10))
    bomb = f"<!DOCTYPE html [<!ENTITY a0 'ha'>{laughs}]><html><p>&a9;</p></html>"
    assert len(shown(bomb)) < 1000
    outside = "<!DOCTYPE html [<!ENTITY x SYSTEM 'file:///etc/hosts'>]><html><p>&x;</p></html>"
    assert "localhost" not in shown(outside)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<ol><li>a<li>b</ol>", "1. a\n2. b"),
        ("<ol start=9><li>a<li>b</ol>", "9. a\n10. b"),
        ("<ol type=a start=26><li>a<li>b</ol>", "z. a\naa. b"),
        ("<ol type=I><li>a<li value=9>b<li>c</ol>", "I. a\nIX. b\nX. c"),
        ("<ol reversed><li>a<li>b<li>c</ol>", "3. a\n2. b\n1. c"),
        ("<ol style='list-style: none'><li>a</ol><ul><li>b</ul>", "a\n\nb"),
        ("<ol><li>a<ol type=a><li>b<li>c</ol><li>d</ol>", "1. a\n\na. b\nb. c\n\n2. d"),
        ("<ol><li><p>a</p><p>b</p></li></ol>", "1. a\n\nb"),
        ("<html><ol reversed='reversed'><li>a</li><li>b</li></ol></html>", "2. a\n1. b"),
    ],
)
def test_items_have_the_numbers_that_the_page_shows(page, text):
    assert shown(page) == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<table><tr><td>a<td><td>c<tr><td><td>b</table>", "a\t\tc\n\tb"),
        ("<table><tr><td>a<br>b<td><p>c</p><p>d</p></table>", "a b\tc d"),
        ("<table><tr><td rowspan=2>North<td>1<tr><td>2<tr><td>South<td>3</table>", "North\t1\nNorth\t2\nSouth\t3"),
        ("<table><tr><th>x<th rowspan=3>y<tr><td>1<tr><td>2</table>", "x\ty\n1\ty\n2\ty"),
        ("<table><tr><th colspan=2>2024<th>2025<tr><td>a<td>b<td>c</table>", "2024\t\t2025\na\tb\tc"),
        ("<html><table><tr><td rowspan='2'>N</td><td>1</td></tr><tr><td>2</td></tr></table></html>", "N\t1\nN\t2"),
        ("<table><tr><td><h1>Head</h1><p>a</p><p>b</p><td>c</table>", "Head\n\na\n\nb\n\nc"),
        ("<table><tr><td><table><tr><td>a<td>b</table><td>c</table>", "a\tb\n\nc"),
        ("<table><caption>Rents</caption><tr><td>a</table>", "Rents\na"),
    ],
)
def test_a_row_of_a_table_is_a_line_and_knows_its_group(page, text):
    assert shown(page) == text


CODE = "def f(r):\n    if r:\n        return 1"


@pytest.mark.parametrize(
    "page",
    [
        f"<pre>\n{CODE}</pre>",
        f"<pre><code class=x>{CODE}</code></pre>",
        f"<html><pre>\n{CODE}</pre></html>",
        f"<pre><span>def</span> {CODE[4:]}</pre>",
        f"<pre><code><b><i>{CODE}</i></b></code></pre>",
        f"<div><pre><div>{CODE}</div></pre></div>",
        f"<textarea>{CODE}</textarea>",
        f"<div style='white-space: pre-wrap'><span>{CODE}</span></div>",
    ],
)
def test_everything_in_pre_keeps_its_lines(page):
    assert shown(page) == CODE


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a<div hidden>b</div><p style='display : none'>c<p style='visibility:hidden'>d<template>e</template>", "a"),
        (
            "<p>a<script>b</script><style>c</style><noscript>d</noscript><dialog>e</dialog><dialog open>f</dialog>",
            "a\n\nf",
        ),
        ("<p>Name <input value='Ada'><input type=hidden value=x><input type=password value=y>", "Name Ada"),
        ("<label>Town<input value=Olmen></label><label>Age<input type=number value=7></label>", "Town Olmen Age 7"),
        ("<select><option>a<option selected>b<option>c</select>.", "b ."),
        ("<select><option>a<option>b</select>", "a"),
        ("<input type=checkbox checked>yes <input type=radio>no", "[x] yes [ ] no"),
        ("<button>Save</button><button>Stop</button>", "Save Stop"),
        ("<p>See <img alt='a chart of tides' src=x>here<img alt='x.png'><img alt=''>", "See a chart of tides here"),
        ("<ruby>佐<rp>(</rp><rt>さ</rt><rp>)</rp>藤<rt>とう</rt></ruby>は老人", "佐藤は老人"),
        ("<html><ruby><rb>東京</rb><rtc><rt>とうきょう</rt></rtc></ruby>都</html>", "東京都"),
        (
            "<p>10<sup>-5</sup> m, in 1731<sup>2</sup>, the 5<sup>th</sup>, m<sup>2</sup>",
            "10⁻⁵ m, in 1731², the 5th, m2",
        ),
        ("<math><msup><mi>x</mi><mn>2</mn></msup><mo>=</mo><mfrac><mn>1</mn><mn>2</mn></mfrac></math>", "x^2=1/2"),
        ("<math alttext='x^2'><mi>y</mi></math>", "x^2"),
        ("<math><semantics><mi>y</mi><annotation>\\y</annotation></semantics></math>", "y"),
        ("<svg><title>icon</title><text>Olmen</text><text>Varna</text></svg>", "Olmen\nVarna"),
        ("<p>so&shy;ft zero\u200bwidth", "soft zerowidth"),
        ("<p>a\vb\x1fc\u2028d\x85e", "a b c d e"),
        ("<p>می\u200cخواهم 👩\u200d🚀", "می\u200cخواهم 👩\u200d🚀"),
        ("<p>it\x92s \x93so\x94", "it’s “so”"),
    ],
)
def test_text_is_what_a_browser_shows(page, text):
    assert shown(page) == text


def test_a_book_without_one_of_its_chapters_is_read_and_the_chapter_told(read):
    book = epub({"a.xhtml": "<h1>A</h1><p>first</p>", "b.xhtml": "<p>second</p>", "c.xhtml": "<p>third</p>"})
    whole = read(book, "whole.epub")
    assert (whole.text, whole.row.unread) == ("A\n\nfirst\n\nsecond\n\nthird", "")
    with ZipFile(io.BytesIO(book)) as archive:
        place = archive.getinfo("OEBPS/b.xhtml").header_offset + 30 + len("OEBPS/b.xhtml") + 8
    damaged = read(book[:place] + bytes([book[place] ^ 0xFF]) + book[place + 1 :], "damaged.epub")
    assert (damaged.text, damaged.row.unread) == ("A\n\nfirst\n\nthird", "the chapter b.xhtml, which is damaged")


def test_a_book_whose_contents_are_damaged_is_read_by_the_names_of_its_chapters(read):
    book = with_member(epub({"b.xhtml": "<p>second</p>", "a.xhtml": "<p>first</p>"}), "OEBPS/book.opf", "<package")
    document = read(book, "a.epub")
    assert (document.text, document.row.unread) == (
        "first\n\nsecond",
        "the order of the chapters, which are sorted by name",
    )


def test_a_book_whose_chapters_are_all_missing_is_refused(read):
    package = (
        "<package><manifest><item id='1' href='gone.xhtml'/></manifest><spine><itemref idref='1'/></spine></package>"
    )
    with pytest.raises(DocumentError, match="has no chapter that can be read"):
        read(with_member(epub({"a.xhtml": "x"}), "OEBPS/book.opf", package), "a.epub")


@pytest.mark.parametrize(
    ("chapter", "text"),
    [
        ("<?xml version='1.0' encoding='iso-8859-1'?><html><p>caf\u20ac\u2019s</p></html>".encode("cp1252"), "caf€’s"),
        ("<?xml version='1.0' encoding='gb2312'?><html><p>朱镕基</p></html>".encode("gbk"), "朱镕基"),
        ("<?xml version='1.0'?><html><p>Größe</p></html>".encode("utf-16"), "Größe"),
        ("<html><p>Größe Länge</p>".encode() + b"<p>x\xffy</p></html>", "Größe Länge\n\nxÿy"),
    ],
)
def test_chapters_are_decoded_as_files_are(read, chapter, text):
    assert read(with_member(epub({"a.xhtml": ""}), "OEBPS/a.xhtml", chapter), "a.epub").text == text


def test_the_number_of_an_empty_item_is_not_that_of_what_follows():
    assert shown("<ol><li>One</li><li></li></ol><p>After</p>").split() == ["1.", "One", "After"]
