"""Where words stand on the pages of PDFs: every box holds the ink of its word, however the page is turned or cut."""

import random
import zlib
from contextlib import closing

import numpy as np
import pypdfium2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_files import assembled, pdf

from localctx.errors import DocumentError
from localctx.library.parsers.pdf import optical
from localctx.library.parsers.pdf.layout import Box, place
from localctx.library.parsers.sandbox import PNG, draw_page
from localctx.library.parsers.word_boxes import GRID, WordBox, pack, unpack
from localctx.library.read_document import read_document

TEXT = "The rent is 1,150 a month.\nIt is paid (in advance) by\nthe tenant; no pets."
INK = 128  # gray values below are ink
edge = st.integers(0, GRID)


@pytest.fixture
def read(tmp_path, parsed_here):
    def read(data: bytes):
        (tmp_path / "a.pdf").write_bytes(data)
        return read_document(str(tmp_path / "a.pdf"))

    return read


def page_of(data: bytes, document, number: int = 0) -> tuple[np.ndarray, list[WordBox], str]:
    """The picture of a page in gray values, the boxes of its words, and its text."""
    with closing(pypdfium2.PdfDocument(data)) as source:
        picture = source[number].render(scale=3, grayscale=True).to_numpy()[:, :]
    page = [span for span in document.spans if span.kind == "page"][number]
    return picture.squeeze(), unpack(document.boxes[number].words), document.text[page.start : page.end]


def pixels(picture: np.ndarray, box: WordBox, margin: int = 1) -> tuple[slice, slice]:
    height, width = picture.shape
    rows = slice(max(0, box.top * height // GRID - margin), box.bottom * height // GRID + 1 + margin)
    return rows, slice(max(0, box.left * width // GRID - margin), box.right * width // GRID + 1 + margin)


def assert_boxes_hold_the_ink(picture: np.ndarray, boxes: list[WordBox]) -> None:
    """Each box has ink in it, and what no box covers has none."""
    outside = picture.copy()
    for box in boxes:
        assert (picture[pixels(picture, box, 0)] < INK).sum() > 20, box
        outside[pixels(picture, box)] = 255
    assert (outside < INK).sum() == 0


def turned(data: bytes, degrees: int, crop: tuple[int, int, int, int] | None = None) -> bytes:
    """The PDF with its pages turned, and cut to a box of page units."""
    box = f"/CropBox[{' '.join(map(str, crop))}]" if crop else ""
    return data.replace(b"/MediaBox[0 0 600 800]", f"/MediaBox[0 0 600 800]{box}/Rotate {degrees}".encode())


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
@pytest.mark.parametrize("crop", [None, (20, 300, 580, 760)])
def test_a_words_box_holds_its_ink(read, degrees, crop):
    data = turned(pdf([TEXT]), degrees, crop)
    document = read(data)
    picture, boxes, text = page_of(data, document)
    assert sorted(text[b.start : b.end] for b in boxes) == sorted(TEXT.split())  # lines of a turned page may go upwards
    assert_boxes_hold_the_ink(picture, boxes)
    width, height = (600, 800) if not crop else (560, 460)
    assert (document.boxes[0].width, document.boxes[0].height) == (
        (width, height) if degrees % 180 == 0 else (height, width)
    )


def test_what_lies_outside_of_the_page_moves_no_box(read):
    data = turned(pdf(["far away\n" * 3 + TEXT]), 0, (0, 0, 600, 665))
    document = read(data)
    picture, boxes, text = page_of(data, document)
    assert [text[b.start : b.end] for b in boxes][-16:] == TEXT.split()
    assert_boxes_hold_the_ink(picture, boxes[-16:])


def test_a_word_divided_between_lines_has_a_box_on_each(read):
    data = pdf(["A long exam-\nple of\x02 it"])
    shown = b"BT /F1 12 Tf 14 TL 50 700 Td (A long exam\x02) Tj T* (ple of it) Tj ET"
    data = assembled(
        [
            "<</Type/Catalog/Pages 2 0 R>>",
            "<</Type/Pages/Kids[4 0 R]/Count 1>>",
            "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F1 3 0 R>>>>/Contents 5 0 R>>",
            f"<</Length {len(shown)}>>stream\n{shown.decode('latin-1')}\nendstream",
        ]
    )
    document = read(data)
    picture, boxes, text = page_of(data, document)
    words = [text[b.start : b.end] for b in boxes]
    assert "".join(words) == "".join(text.split())
    assert all((b.bottom - b.top) * 800 / GRID < 20 for b in boxes), "a box covers two lines"
    assert_boxes_hold_the_ink(picture, boxes)


def test_every_page_has_its_own(read):
    data = pdf(["First page", "", "Third one"])
    document = read(data)
    assert [(b.page, len(unpack(b.words))) for b in document.boxes] == [(0, 2), (1, 0), (2, 2)]
    picture, boxes, text = page_of(data, document, 2)
    assert text[boxes[0].start : boxes[0].end] == "Third"
    assert_boxes_hold_the_ink(picture, boxes)


# The stored form


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 500), edge, edge, edge, edge), max_size=50),
    st.integers(0, 9),
)
def test_boxes_come_back_as_they_were_packed(rows, shift):
    start, words = 0, []
    for step, length, *edges in rows:
        start += step
        words.append(WordBox(start, start + length, *edges))
    moved = [w._replace(start=w.start + shift, end=w.end + shift) for w in words]
    assert unpack(pack(words), shift) == moved


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data):
    for packed in (data, zlib.compress(data + b"x" * (len(data) % 14 == 0)), zlib.compress(bytes(14))[:-1]):
        with pytest.raises(ValueError, match="damaged"):
            unpack(packed)


def test_a_bomb_is_refused():
    with pytest.raises(ValueError, match="damaged"):
        unpack(zlib.compress(bytes(1 << 26)))


# OCR


@given(st.randoms(), st.integers(0, 3))
def test_boxes_on_a_turned_picture_are_turned_back(chance: random.Random, quarters: int):
    height, width = 60, 90
    left, top = chance.randrange(0, 70), chance.randrange(0, 40)
    right, bottom = left + chance.randrange(1, 20), top + chance.randrange(1, 20)
    picture = np.zeros((height, width), bool)
    picture[top:bottom, left:right] = True
    rows, columns = (np.flatnonzero(np.rot90(picture, quarters).any(axis)) for axis in (1, 0))
    seen = Box(columns[0], rows[0], columns[-1] + 1, rows[-1] + 1, "x")
    assert optical._turned_back(seen, quarters, height, width)[:4] == (left, top, right, bottom)


@given(st.lists(st.sampled_from(["one", "exam-", "ple", "and so", "North-", "south"]), max_size=12))
def test_each_piece_is_placed_where_its_words_are_in_the_text(pieces):
    boxes = [Box(0, 12 * i, 6 * len(piece), 12 * i + 10, piece) for i, piece in enumerate(pieces)]
    text, placed = place(boxes)
    for start, end, box in placed:
        assert text[start:end] == box.text


def test_words_take_their_share_of_a_line():
    words = list(optical._words("ab cdef", [(0, 7, Box(10, 20, 80, 30, "ab cdef"))], 100, 200, 1000, 1000))
    assert [(w.start, w.end) for w in words] == [(0, 2), (3, 7)]
    assert [round(w.left / GRID * 1000) for w in words] == [110, 135]
    assert [round(w.right / GRID * 1000) for w in words] == [135, 180]
    assert {(round(w.top / GRID * 1000), round(w.bottom / GRID * 1000)) for w in words} == {(220, 230)}


# Drawing


def test_a_page_is_drawn_with_its_text_and_the_same_boxes_as_it_is_read_with(read):
    data = pdf(["First", TEXT])
    document, drawn = read(data), draw_page(data, 1)
    assert drawn.png.startswith(PNG)
    assert drawn.text == TEXT
    assert drawn.boxes == document.boxes[1]


@pytest.mark.parametrize("number", [-1, 2, 10**9])
def test_a_page_that_is_not_there_is_not_drawn(number):
    with pytest.raises(DocumentError, match="has no page"):
        draw_page(pdf(["One", "Two"]), number)


@pytest.mark.parametrize("data", [b"", b"%PDF-1.4 nothing", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_pdf_is_not_drawn(data):
    with pytest.raises(DocumentError, match="damaged"):
        draw_page(data, 0)


@pytest.mark.parametrize("box", ["14400 14400", "3 14400", "1 1"])
def test_a_page_of_any_size_makes_a_picture_of_bounded_size(box):
    drawn = draw_page(pdf(["x"]).replace(b"[0 0 600 800]", f"[0 0 {box}]".encode()), 0)
    width, height = (int.from_bytes(drawn.png[at : at + 4], "big") for at in (16, 20))
    assert 0 < width * height <= 6_100_000
    assert max(width, height) <= 8_001
