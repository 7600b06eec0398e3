"""Documents of every format: their text in order, spans to the character, and each read as what it is."""

import io
import itertools
import os
import shutil
import time
from pathlib import Path

import pytest
from clock import seconds_since
from hypothesis import given, settings
from hypothesis import strategies as st
from made_files import docx, epub, old_office, pdf, with_member, zipped

from localctx.errors import Cancelled, DocumentError
from localctx.library.add import add_document, find_stored
from localctx.library.folders.find import find_documents
from localctx.library.parsers.sandbox import ReadOptions
from localctx.library.parsers.text_builder import TextBuilder
from localctx.library.read_document import Document, make_spans, read_document

WORD = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMESPACE = "xmlns:w='w' xmlns:m='m'"


@pytest.fixture
def read(tmp_path):
    """Reads bytes as a file of a name."""

    def read(data: bytes | str, name: str = "document", **how) -> Document:
        (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
        return read_document(str(tmp_path / name), ReadOptions(**how))

    return read


def parts(document: Document, kind: str) -> list[tuple[str, str]]:
    """Labels of the spans of a kind, and the text of each."""
    return [(s.label, document.text[s.start : s.end]) for s in document.spans if s.kind == kind]


def refused(read, data: bytes | str, name: str = "document", **how) -> str:
    with pytest.raises(DocumentError) as e:
        read(data, name, **how)
    assert e.value.problem
    assert e.value.remedy
    assert "\n" not in str(e.value)
    return e.value.problem.rpartition("/")[2]


# PDF


def test_pages_of_a_pdf_by_their_labels_and_headings_from_its_outline(read):
    pages = ["Preface text", "Chapter  One\nIt (really) begins.", "", "On chapter one again"]
    outline = [("Chapter One", 1), ("Not to be found", 3)]
    labels = "/PageLabels<</Nums[0<</S/r>>1<</S/D>>]>>"
    heard: list[tuple[int, int]] = []
    document = read(pdf(pages, outline, labels=labels), progress=lambda done, total: heard.append((done, total)))
    first, second, last = "Preface text\n\n", "Chapter One\nIt (really) begins.\n\n", "On chapter one again"
    assert document.text == first + second + last
    assert parts(document, "page") == [("i", first), ("1", second), ("2", ""), ("3", last)]
    assert parts(document, "heading") == [("Chapter One", second), ("Not to be found", last)]
    assert heard == [(i, 4) for i in range(1, 5)]
    assert document.row.encoding == "pdf"


def test_lines_end_in_newlines_and_nothing_unprintable_is_left(parsed_here, read):
    document = read(pdf(["first\nsecond exam-\nple\x00\x02 end" + " and more" * 9]))
    assert document.text == "first\nsecond example end" + " and more" * 9


def test_a_pdf_without_text_is_named_as_scanned(read):
    assert refused(read, pdf([""])) == "document has 1 page but no text: it is scanned"
    assert refused(read, pdf(["", ""])) == "document has 2 pages but no text: it is scanned"


def test_a_pdf_whose_fonts_have_no_letters_is_refused_as_such(parsed_here, read):
    assert "do not say which letters" in refused(read, pdf(["\x01\x02\x03\x04 a few \x05\x06\x07"] * 2), ocr="off")


def test_a_pdf_with_a_password_is_named_as_such(parsed_here, read):
    locked = "/Encrypt<</Filter/Standard/V 1/R 2/P -4/O(" + "o" * 32 + ")/U(" + "u" * 32 + ")>>/ID[(a)(a)]"
    assert refused(read, pdf(["secret"], trailer=locked)) == "document is a PDF with a password"


@pytest.mark.slow
def test_ten_thousand_pages_are_read_and_can_be_stopped_within_a_second(read):
    many = pdf([f"Page {i}" for i in range(10_000)])
    document = read(many)
    pages = parts(document, "page")
    assert (len(pages), pages[4321], pages[-1]) == (10_000, ("4322", "Page 4321\n\n"), ("10000", "Page 9999"))

    stopped = 0.0

    def stop(done: int, total: int) -> None:
        nonlocal stopped
        stopped = time.monotonic()
        raise Cancelled

    with pytest.raises(Cancelled):
        read(many, progress=stop)
    assert seconds_since(stopped) < 1


# Web pages


def test_a_web_page_is_its_visible_text_in_order(parsed_here, read):
    page = """<!doctype html><html><head><title>Not this</title><style>p {}</style></head><body>
    <script>if (a<b) no()</script><nav>Menu</nav><h1>All <em>rivers</em></h1>
    <p>One   two<br>three &amp; four.</p><div>Five</div><div hidden>no</div><p style="display: none">no</p>
    <template>no</template><!-- no --><ul><li>six<li>seven</ul>
    <table><tr><td>8</td><td><b>9</b></td></tr><tr><td>10</td></tr></table><pre>  x
    y</pre><h2></h2><h2>The end</h2></body></html>"""
    document = read(page)
    assert document.text == (
        "Menu\n\nAll rivers\n\nOne two\nthree & four.\n\nFive\n\nsix\nseven\n\n8\t9\n10\n\n  x\n    y\n\nThe end"
    )
    assert [label for label, _ in parts(document, "heading")] == ["All rivers", "The end"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1251"])
def test_a_web_page_in_another_encoding(parsed_here, read, encoding):
    declared = '<meta charset="windows-1251">' if encoding == "cp1251" else ""
    assert read(f"<html>{declared}<p>Реки</p></html>".encode(encoding)).text == "Реки"


@pytest.mark.parametrize("data", [b"<!---->" * 400 + b"x", b"A: b\n" + b" " * 60_000])
def test_what_only_begins_as_a_page_or_a_message_is_known_at_once(read, data):
    start = time.monotonic()
    assert read(data, "a.txt").text
    assert seconds_since(start) < 5


@pytest.mark.parametrize(("name", "text"), [("page.html", "x"), ("page.txt", "<p>x</p>")])
def test_tags_in_a_text_or_a_text_called_html_stay_as_they_are(read, name, text):
    assert read(text, name).text == text


# Word


def test_a_word_document_with_headings_tables_and_breaks(parsed_here, read):
    import docx as python_docx

    made = python_docx.Document()
    made.add_heading("All rivers", 0)
    made.add_paragraph("Before.")
    made.add_heading("Long ones", 2)
    made.add_paragraph("One\ttwo\nthree").add_run().add_break(python_docx.enum.text.WD_BREAK.PAGE)
    table = made.add_table(2, 2)
    for i, cell in enumerate(c for row in table.rows for c in row.cells):
        cell.text = f"cell {i}"
    buffer = io.BytesIO()
    made.save(buffer)
    document = read(buffer.getvalue())
    table_text = "cell 0\tcell 1\ncell 2\tcell 3"
    assert document.text == f"All rivers\n\nBefore.\n\nLong ones\n\nOne\ttwo\nthree\n\n{table_text}"
    assert [label for label, _ in parts(document, "heading")] == ["All rivers", "Long ones"]
    assert not parts(document, "page")


def test_what_is_inserted_boxed_or_noted_is_read_and_what_is_struck_out_is_not(parsed_here, read):
    body = f"""<w:document {NAMESPACE}><w:body><w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr>
    <w:r><w:t>kept</w:t></w:r><w:del><w:r><w:delText> struck</w:delText></w:r></w:del>
    <w:ins><w:r><w:t xml:space="preserve"> inserted</w:t></w:r></w:ins>
    <w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom></w:p><w:sdt><w:sdtContent><w:p><w:r><w:t>form</w:t></w:r></w:p></w:sdtContent></w:sdt>
    <w:p><w:r><m:AlternateContent>
    <m:Choice><w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p></w:txbxContent></m:Choice><m:Fallback><w:p><w:r><w:t>box</w:t></w:r></w:p></m:Fallback></m:AlternateContent></w:r></w:p></w:body></w:document>"""
    notes = f"<w:footnotes {NAMESPACE}><w:footnote><w:p><w:r><w:t>a note</w:t></w:r></w:p></w:footnote></w:footnotes>"
    document = read(with_member(with_member(docx(), "word/document.xml", body), "word/footnotes.xml", notes))
    assert document.text == "kept inserted\n\nform\n\nbox\n\na note"


# EPUB


def test_chapters_of_a_book_in_the_order_of_its_spine(parsed_here, read):
    book = epub({"z.xhtml": "<h1>One</h1><p>first</p>", "a b.xhtml": "<h2>Two</h2><p>second</p>"})
    document = read(book, "book.zip")
    assert document.text == "One\n\nfirst\n\nTwo\n\nsecond"
    assert parts(document, "heading") == [("One", "One\n\nfirst\n\n"), ("Two", "Two\n\nsecond")]


def test_a_locked_book_is_named_as_such_but_locked_fonts_are_none_of_our_business(parsed_here, read):
    def locked(name: str) -> bytes:
        return epub({"a.xhtml": "text"}, {"META-INF/encryption.xml": f'<e><CipherReference URI="OEBPS/{name}"/></e>'})

    assert "locked by its seller" in refused(read, locked("a.xhtml"))
    assert read(locked("font.otf")).text == "text"


# What a file is


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.epub", "a.txt", "a.py", "a"])
def test_a_wrong_extension_is_read_as_what_it_is(read, name):
    for data, text in (
        (pdf(["Text"]), "Text"),
        (docx(), "Rivers\n\nThey are long."),
        (epub({"a": "x"}), "x"),
        ("y", "y"),
    ):
        assert read(data, name).text == text


@pytest.mark.process
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (zipped({"content.xml": "", "META-INF/manifest.xml": ""}), "a damaged OpenDocument file, or has no text"),
        (zipped({"Index/Document.iwa": ""}), "a file of Apple's Pages"),
        (zipped({"notes.txt": "x"}), "a zip file"),
        (old_office("WordDocument"), "an old Word file"),
        (old_office("PowerPoint Document"), "an old PowerPoint file"),
        (old_office("EncryptedPackage"), "locked with a password"),
        (old_office("__properties_version1.0"), "an Outlook message"),
        (old_office("Workbook"), "a damaged spreadsheet"),
        (old_office("Contents"), "an old Office file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "a picture"),
        (b"\x1f\x8b\x08" + bytes(50), "compressed"),
    ],
)
def test_what_is_no_document_here_is_named(parsed_here, read, data, problem):
    assert refused(read, data).startswith(f"document is {problem}")


def test_source_code_and_files_without_columns_are_text(read):
    for name, text in (
        ("a.csv", "a note, no table\nin two lines\n"),
        ("a.tsv", "a\nb\n"),
        ("a.py", 'PAGE = "<html>"\n# not a heading\n'),
    ):
        document = read(text, name)
        assert (document.text, document.spans) == (text, ())


# Spans


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["words", "verbatim", "line", "cell", "page", "heading"]), WORD)))
def test_marks_are_where_their_words_are_and_pages_cover_the_text_once(steps):
    flow, number = TextBuilder(), itertools.count(1)
    flow.mark("page", "0")
    for step, text in steps:
        if step == "heading":
            flow.begin_heading()
            flow.words(text)
            flow.end_heading()
        elif step == "page":
            flow.line(2)
            flow.mark("page", str(next(number)))
        elif step in ("line", "cell"):
            getattr(flow, step)()
        else:
            getattr(flow, step)(text)
    text, marks = flow.done()
    text.encode()
    spans = make_spans(marks, len(text))
    pages = [s for s in spans if s.kind == "page"]
    assert "".join(text[s.start : s.end] for s in pages) == text
    assert [s.label for s in pages] == [str(i) for i in range(len(pages))]
    for heading in (s for s in spans if s.kind == "heading"):
        assert " ".join(text[heading.start :].split()).startswith(heading.label)


# Folders


def found(*sources: object) -> tuple[list[str], dict[str, str]]:
    passed_over: dict[str, str] = {}
    return list(find_documents(map(str, sources), passed_over.__setitem__)), passed_over


def test_a_folder_is_its_documents_in_order_and_what_is_passed_over_is_told(tmp_path):
    for name in ("b.txt", "a/z.md", "a/c/y.pdf", ".git/config", "a/.hidden", "a/photo.JPG"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "dangling.txt").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    files, passed_over = found(tmp_path)
    assert files == [str(tmp_path / name) for name in ("b.txt", "a/z.md", "a/c/y.pdf")]
    told = {str(Path(path).relative_to(tmp_path)): why for path, why in passed_over.items()}
    assert told.keys() == {".git", "a/.hidden", "a/photo.JPG", "a/loop", "dangling.txt", "pipe"}
    assert "link to a folder" in told["a/loop"]


def test_patterns_names_and_folders_may_overlap_and_each_file_comes_once(tmp_path):
    for name in ("a.txt", "b[1].txt", "c.md"):
        (tmp_path / name).write_text("x")
    wanted = [str(tmp_path / name) for name in ("b[1].txt", "a.txt", "c.md")]
    files, passed_over = found(tmp_path / "b[1].txt", tmp_path / "*.txt", tmp_path, "-", "missing-*")
    assert (files, passed_over) == ([*wanted, "-", "missing-*"], {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open any folder")
def test_a_closed_folder_is_told(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    assert "cannot be opened" in found(tmp_path)[1][str(tmp_path / "closed")]


def test_the_copy_of_a_file_costs_no_reading(store, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("text")
    row = store.documents.find(add_document(store, str(tmp_path / "a.txt")).id)
    shutil.copy(tmp_path / "a.txt", tmp_path / "b.txt"), shutil.copy(tmp_path / "a.txt", tmp_path / "b.csv")
    found = find_stored(store, str(tmp_path / "b.txt"))
    assert (found.row.id, found.row.name, found.row.path) == (row.id, "b.txt", str(tmp_path / "b.txt"))
    assert find_stored(store, str(tmp_path / "b.csv")) is None, "a table is read in another way"
    (tmp_path / "b.txt").write_text("next")
    assert find_stored(store, str(tmp_path / "b.txt")) is None
