"""Presentations, spreadsheets, OpenDocument, e-mail and RTF: their text in order, and the place of every part."""

from contextlib import closing

import pytest
from made_files import with_member
from office_files import RTF, forwarded, mbox, message, odp, ods, odt, pptx, rent_message, rents, xlsx

from localctx.document_parts import tell_part, tell_place
from localctx.errors import DocumentError, UsageError
from localctx.library.add import add_document
from localctx.library.citations.cite import cite_passages, cite_words
from localctx.library.read_document import Document, read_document
from localctx.library.reading_mark import find_mark
from localctx.library.search.indexing import index
from localctx.library.search.search import search
from localctx.library.search.sections import section_at
from localctx.store.documents import StoredDocument
from localctx.store.store import Store
from localctx.store.transcript import reference


@pytest.fixture
def read(tmp_path, parsed_here):
    """Reads bytes as a file of a name."""

    def read(data: bytes, name: str = "document") -> Document:
        (tmp_path / name).write_bytes(data)
        return read_document(str(tmp_path / name))

    return read


def parts(document: Document, kind: str) -> dict[str, str]:
    """The spans of a kind by their labels."""
    return {s.label: document.text[s.start : s.end].strip() for s in document.spans if s.kind == kind}


# What is read


def test_slides_of_a_presentation_with_notes_tables_groups_and_charts(read):
    document = read(pptx())
    assert document.row.encoding == "pptx"
    assert parts(document, "slide") == {
        "1": "All rivers\n\nA talk",
        "2": "Long ones\n\nThe Nile is long.\nThe Amazon is wide.\n\nNotes: The Nile has 6,650 km.",
        "3": "cell 0\tcell 1\ncell 2\tcell 3\n\nin a group\n\n\tRain\n2024\t1.5\n2025\t2",
        "5": "The end",
    }
    assert list(parts(document, "heading")) == ["All rivers", "Long ones", "The end"]
    assert "in a group" not in "".join(parts(document, "heading").values())


def test_slides_of_an_opendocument_presentation(read):
    document = read(odp())
    slides = {"1": "All rivers\n\nA talk", "2": "No title", "3": "Long ones\n\nNile.\n\nNotes: Slowly."}
    assert (document.row.encoding, parts(document, "slide")) == ("odp", slides)
    assert parts(document, "heading") == {"All rivers": slides["1"], "Long ones": slides["3"]}


def test_each_row_of_a_sheet_names_its_values(read):
    document = read(rents())
    assert document.text == (
        "Prices\n\nRents\n\nFlat\tRent\tFrom\n\nFlat: First; Rent: 1200.5; From: 2026-05-01\n\n"
        "Flat: Second; Rent: 0.3; From: 2026-05-01\n\nFlat: Third; Rent: 950; From: 2026-05-01\n\n"
        "Form\n\nTenant\tAnn\n\nRent\t1200\n\nStart\t2026-05-01\n\nPets\tTRUE\n\n"
        "Years\n\n2024\t2025\n\nIncome; 2024: 5; 2025: 6\n\nCosts; 2024: 4; 2025: 3"
    )
    rows = [(s.label, document.text[s.start : s.end].strip()) for s in document.spans if s.kind == "row"]
    assert rows[2] == ("4", "Flat: First; Rent: 1200.5; From: 2026-05-01")
    assert rows[5] == ("1", "Form\n\nTenant\tAnn")
    assert list(parts(document, "heading")) == ["Prices", "Form", "Years"]


def test_rows_of_an_opendocument_spreadsheet(read):
    document = read(ods())
    assert document.text.endswith("Flat: First; Rent: 1200; Due: May\n\nFlat: Second; Rent: 950; Due: June")
    assert parts(document, "row")["3"] == "Flat: Second; Rent: 950; Due: June"


def test_a_header_further_down_begins_a_table_of_its_own(read):
    sheet = [
        ["a", "b", "c"],
        [1, 2, 3],
        [4, 5, 6],
        [],
        ["x", "y", "z"],
        [7, 8, 9],
        [1, 1, 1],
        [],
        ["only", "text", "here"],
    ]
    rows = parts(read(xlsx({"S": sheet})), "row")
    assert (rows["2"], rows["6"], rows["9"]) == ("a: 1; b: 2; c: 3", "x: 7; y: 8; z: 9", "x: only; y: text; z: here")


def test_a_large_sheet_keeps_its_header(read):
    rows = parts(read(xlsx({"S": [["name", "size", "kind"], *([f"n{i}", i, "k"] for i in range(3000))]})), "row")
    assert (len(rows), rows["3001"]) == (3001, "name: n2999; size: 2999; kind: k")


def test_an_opendocument_text_with_its_notes_and_comments_after_their_paragraph(read):
    document = read(odt())
    notes, table = "Comment: not this\n\nFootnote 1: a note", "cell 0\tcell 1\ncell 2\tcell 3"
    assert document.text == f"Rivers\n\nThey are  long and wide.\nsecond\n\n{notes}\n\n{table}\n\nEnd."
    assert list(parts(document, "heading")) == ["Rivers"]


def test_rtf_in_several_code_pages_with_a_table_and_without_pictures(read):
    document = read(RTF)
    assert document.text == "Rivers\n\nThey are löng € and\nwide.\n\nРеки\n\na\tb\nc\td\n\nafter 😀"  # noqa: RUF001
    assert document.row.encoding == "rtf"


LETTER = """The rent for Mäy

From: Ann Ö <ann@example.org>
To: bob@example.org
Date: Mon, 04 May 2026 10:00:00 +0200

Hello Bob,

the rent is 1,200 EUR.

Attachment: lease.pdf (application/pdf, 1000 B)

Attachment: note.txt (text/plain, 17 B)

text of the note"""


@pytest.mark.parametrize("name", ["a.eml", "a", "a.pdf", "a.txt"])
def test_a_message_in_plain_text_with_its_attachments(read, name):
    document = read(bytes(rent_message()), name)
    assert (document.text, document.row.encoding) == (LETTER, "eml")
    assert list(parts(document, "heading")) == ["The rent for Mäy", "note.txt"]


def test_a_message_in_html_and_the_one_attached_to_it(read):
    document = read(bytes(forwarded()).replace(b"\n", b"\r\n"))
    assert "Hello\n\nThe deposit is two rents.\n\nAttached message:\n\nThe rent for Mäy\n\nFrom:" in document.text
    assert list(parts(document, "heading")) == ["Only HTML", "The rent for Mäy", "note.txt"]


@pytest.mark.parametrize("name", ["a.mbox", "Inbox"])
def test_messages_of_a_mailbox(read, tmp_path, name):
    third = message("Third", "From here on it rains.\n\nFrom now on too.\n")
    messages = parts(read(mbox(tmp_path, [rent_message(), forwarded(), third]), name), "message")
    assert list(messages) == ["1", "2", "3"]
    assert messages["1"] == LETTER
    assert messages["3"].endswith("From here on it rains.\n\nFrom now on too.")


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"Content-Type: text/plain; charset=nonsense\n\nhello \xe4", "hello ä"),
        (b"Content-Type: text/plain; charset=undefined\n\nhello \xe4", "hello ä"),
        (b"Content-Type: multipart/mixed\n\nhello", "hello"),
        (b"Content-Type: text/plain; charset*0*=x''%\n\nhello", "hello"),
        (b"To: " + b"(" * 5000 + b"\n\nhello", "hello"),
        (b"To: " + b", ".join(b"a%d@b" % i for i in range(20_000)) + b"\n\nhello", "hello"),
    ],
)
def test_odd_messages_are_read_as_far_as_they_go(read, head, text):
    assert read(b"From: a@b\nDate: today\n" + head).text.endswith(f"\n\n{text}")


@pytest.mark.parametrize("text", ["Note: this\nis no mail\n", "From: me\nto you\n", "From here on\nit rains: much\n"])
def test_a_text_with_colons_is_no_mail(read, text):
    assert read(text.encode(), "a.txt").text == text


# What a citation names


def stored(store: Store, read, data: bytes, name: str, folder) -> StoredDocument:
    (folder / name).write_bytes(data)
    added = add_document(store, str(folder / name))
    assert added.status == "added", added.why
    row = store.documents.find(added.id)
    index(store, row, None)
    return StoredDocument(row, store.documents.text(row.id), store.documents.spans(row.id))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "name", "answer", "told"),
    [
        (lambda folder: pptx(), "talk.pptx", "The Amazon is wide.", "slide 2, Long ones"),
        (lambda folder: pptx(), "talk.pptx", "in a group", "slide 3"),
        (lambda folder: odp(), "talk.odp", "Slowly.", "slide 3, Long ones"),
        (lambda folder: rents(), "rents.xlsx", "Second 0.3", "row 5, Prices"),
        (lambda folder: rents(), "rents.xlsx", "Costs 2024 4", "row 3, Years"),
        (lambda folder: ods(), "rents.ods", "Second 950 June", "row 3, Prices"),
        (
            lambda folder: mbox(folder, [message("One", "Rain.\n"), forwarded()]),
            "post.mbox",
            "The deposit is two rents.",
            "message 2, Only HTML",
        ),
        (lambda folder: bytes(rent_message()), "a.eml", "the rent is 1,200 EUR.", "The rent for Mäy"),
        (lambda folder: odt(), "a.odt", "long and wide", "Rivers"),
    ],
)
def test_answers_and_hits_name_the_slide_row_or_message(home, tmp_path, read, make, name, answer, told):
    with closing(Store(home)) as store:
        document = stored(store, read, make(tmp_path), name, tmp_path)
        cited = cite_words(answer, "", [document])[0]
        hit = search(store, answer, None).passages[0]
    assert tell_place(cited.page, cited.heading) == told
    assert document.text[cited.start : cited.end] == cited.quote
    assert hit.page_at(cited.start) == cited.page
    assert cite_passages(answer, "", [hit])[0].page == cited.page
    assert f", {told}" in reference(vars(cited)).replace("\\", "")


@pytest.mark.slow
def test_parts_are_counted_and_told_as_what_they_are(home, tmp_path, read):
    with closing(Store(home)) as store:
        counted = {
            name: store.documents.count_parts(stored(store, read, data, name, tmp_path).id)
            for name, data in (("a.pptx", pptx()), ("a.ods", ods()), ("a.odt", odt()))
        }
    assert counted == {"a.pptx": ("slide", 4), "a.ods": ("row", 2), "a.odt": ("page", 0)}


def test_headers_and_titles_of_sheets_are_not_counted_as_rows(home, tmp_path, read):
    invoices = [["Invoices of 2025"], ["Number", "City", "Net"], *([f"A{n}", "Oslo", n] for n in range(200))]
    prices = [["Flat", "Rent", "Due"], ["First", 1200, "May"], ["Second", 950, "June"]]
    form = [["Name", "Ada"], ["City", "Varna"]]
    files = {
        "a.xlsx": (xlsx({"Invoices": invoices}), 200),
        "b.xlsx": (xlsx({"Invoices": invoices, "Prices": prices}), 202),
        "c.xlsx": (xlsx({"Form": form}), 2),
        "d.csv": (b"name,size,kind\n" + b"".join(b"n%d,%d,k\n" % (n, n) for n in range(3000)), 3000),
    }
    with closing(Store(home)) as store:
        for name, (data, rows) in files.items():
            document = stored(store, read, data, name, tmp_path)
            assert store.documents.count_parts(document.id) == ("row", rows), name


def test_sections_and_words_for_parts(read):
    document = read(pptx())
    at = [next(s.start for s in document.spans if (s.kind, s.label) == ("slide", label)) for label in ("2", "5")]
    assert section_at(document.spans, at[0], at[1] + 1).pages == "slides 2-5"
    assert section_at(document.spans, at[0], at[0] + 1).pages == "slide 2"
    assert [tell_part(named) for named in ("12", "3-5", "slide 3", "rows 3-5")] == [
        "page 12",
        "pages 3-5",
        "slide 3",
        "rows 3-5",
    ]


def test_a_document_is_read_up_to_a_slide_or_a_message(read):
    document = read(pptx())
    whole = StoredDocument(document.row, document.text, document.spans)
    assert document.text[: find_mark(whole, "slide 2")].endswith("6,650 km.\n\n")
    assert find_mark(whole, "2") == find_mark(whole, "Slide 2")
    with pytest.raises(UsageError, match="has no slide 4"):
        find_mark(whole, "4")
    with pytest.raises(UsageError, match="has no messages"):
        find_mark(whole, "message 1")


def test_a_locked_file_is_named_as_such(read):
    manifest = "<m:manifest xmlns:m='m'><m:encryption-data/></m:manifest>"
    for made in (odt(), ods()):
        with pytest.raises(DocumentError, match="is locked with a password; save a copy without one"):
            read(with_member(made, "META-INF/manifest.xml", manifest))
