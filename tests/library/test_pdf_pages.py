"""The pages of a PDF together: their labels, running heads, sentences across pages, and pages that cannot be read."""

import pytest
from made_files import pdf
from made_pdfs import Drawn, at, drawn_pdf, lines, note_object, rule

from localctx.errors import DocumentError
from localctx.library.parsers.pdf import optical, read_pdf
from localctx.library.parsers.pdf.page_labels import distinct, name_pages
from localctx.library.parsers.word_boxes import GRID, unpack

ONE = [
    "The harbour board met in the old customs house to hear the report of the",
    "surveyor, who had measured the north pier after the storm of March. He said",
    "that the piles were",
]
TWO = [
    "driven too lightly into the ground. The repair would cost four thousand",
    "crowns in all, and the money had to be found before the winter. They asked the",
    "council of the",
]
THREE = [
    "town for a loan, which was granted in June. The new piles came from Norway",
    "and were driven by a steam engine. The pier stood for sixty years.",
]
SENTENCES = [
    "He said that the piles were driven too lightly into the ground.",
    "They asked the council of the town for a loan, which was granted in June.",
]


def read(data: bytes, ocr: str = "off"):
    """The text of a PDF, the starts of its pages with their labels, what was not read, and the builder of it all."""
    builder = read_pdf.read(data, lambda *of: None, ocr, lambda: None)[1]
    text, marks = builder.done()
    return text, [(start, label) for start, kind, label in marks if kind == "page"], builder.unread, builder


def flat(text: str) -> str:
    return " ".join(text.split())


# Labels


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (["i", "ii", "1", "2", "1", "2"], ["i", "ii", "1", "2", "1 (sheet 5)", "2 (sheet 6)"]),
        (["1", "1", "1"], ["1", "1 (sheet 2)", "1 (sheet 3)"]),
        (["i", "I", "A-1"], ["i", "I (sheet 2)", "A-1"]),
        (["", "1", ""], ["1", "1 (sheet 2)", "3"]),
        (["217", "218"], ["217", "218"]),
    ],
)
def test_a_label_names_one_page(labels, told):
    assert distinct(labels) == told


def test_pages_of_a_file_with_repeated_labels_are_told_apart():
    labels = "/PageLabels<</Nums[0<</S/r>>2<</S/D>>4<</S/D>>6<</S/D>>]>>"
    pages = [lines(50, 700, [f"This is sheet {i}."]) for i in range(1, 8)]
    _, marks, _, _ = read(drawn_pdf(pages, labels=labels))
    assert [label for _, label in marks] == ["i", "ii", "1", "2", "1 (sheet 5)", "2 (sheet 6)", "1 (sheet 7)"]


@pytest.mark.parametrize(
    ("pages", "name"),
    [
        ([2], "page 3"),
        ([0, 1, 2], "pages 1 to 3"),
        ([0, 2, 3, 4, 8], "pages 1, 3 to 5 and 9"),
        ([1, 3], "pages 2 and 4"),
    ],
)
def test_pages_are_named_in_ranges(pages, name):
    assert name_pages([str(i) for i in range(1, 10)], pages) == name


def test_hundreds_of_ranges_are_not_named_one_by_one():
    assert len(name_pages([str(i) for i in range(2_000)], range(0, 2_000, 2))) < 200


# Running lines


def page(number: int, body: list[str], foot: str = "Page {} of 3") -> list[str]:
    head = at(50, 770, "Minutes of the harbour board", 9)
    return [head, *lines(50, 700, body), at(50, 40, "Printed at Lindholm", 8), at(290, 25, foot.format(number), 8)]


@pytest.mark.parametrize("foot", ["Page {} of 3", "{}", "- {} -", "Seite {}", "p. {}", "{}/3"])
def test_running_lines_and_page_numbers_divide_no_sentence(foot):
    text = read(drawn_pdf([page(i, body, foot) for i, body in enumerate((ONE, TWO, THREE), 1)]))[0]
    assert all(sentence in flat(text) for sentence in SENTENCES)
    assert text.startswith("Minutes of the harbour board\n\nThe harbour board met")
    assert text.count("Minutes of the harbour board") == text.count("Printed at Lindholm") == 1
    assert foot.format(2) not in text.split("\n")


def test_running_lines_are_found_whatever_order_they_are_written_in():
    pages = [page(i, body) for i, body in enumerate((ONE, TWO, THREE), 1)]
    assert read(drawn_pdf([drawn[::-1][:2] + drawn[:-2] for drawn in pages]))[0] == read(drawn_pdf(pages))[0]


def test_heads_of_left_and_right_pages_are_kept_once_each():
    heads = [f"{i}   Lindholm" if i % 2 else f"The harbour   {i}" for i in range(1, 7)]
    bodies = [ONE, TWO, THREE] * 2
    pages = [[at(50, 770, head), *lines(50, 700, body)] for head, body in zip(heads, bodies, strict=True)]
    text = read(drawn_pdf(pages))[0]
    assert flat(text).count(SENTENCES[1]) == 2
    assert text.count("Lindholm") == text.count("The harbour 2") == 1
    assert "The harbour 4" not in text


def test_a_number_that_counts_no_pages_is_kept_on_each():
    names = ["Holm", "Rei", "Sund"]
    bills = [
        [at(50, 770, f"Invoice no. {101 + 7 * i}"), *lines(50, 690, [f"To {name}", "Total", f"{i}.00"])]
        for i, name in enumerate(names)
    ]
    text = read(drawn_pdf(bills))[0]
    assert [f"Invoice no. {n}" in text for n in (101, 108, 115)] == [True] * 3
    assert text.count("Total") == 3


def test_numbers_of_pages_that_begin_elsewhere_divide_no_sentence():
    pages = [[at(50, 770, f"Annals {216 + i}"), *lines(50, 700, body)] for i, body in enumerate((ONE, TWO, THREE), 1)]
    text = read(drawn_pdf(pages))[0]
    assert all(sentence in flat(text) for sentence in SENTENCES)
    assert [f"Annals {n}" in text for n in (217, 218, 219)] == [True] * 3


def test_roman_numbers_of_pages_are_numbers():
    labels = "/PageLabels<</Nums[0<</S/r>>]>>"
    pages = [
        [*lines(50, 700, body), at(290, 30, n)] for n, body in zip(("i", "ii", "iii"), (ONE, TWO, THREE), strict=True)
    ]
    text, marks, _, _ = read(drawn_pdf(pages, labels=labels))
    assert all(sentence in flat(text) for sentence in SENTENCES)
    assert [label for _, label in marks] == ["i", "ii", "iii"]
    assert "\nii" not in text


def test_pages_that_are_all_alike_keep_their_text():
    assert read(drawn_pdf([lines(50, 770, ["Left blank."])] * 4))[0].count("Left blank.") == 4
    assert read(pdf(["The same.\nAgain the same."] * 3))[0].count("Again the same.") == 3


def test_equal_lines_in_the_middle_of_pages_stay():
    pages = [lines(50, 500, ["Name and town", f"Person {i} of Olmen."]) for i in range(4)]
    assert read(drawn_pdf(pages))[0].count("Name and town") == 4


def test_a_sentence_across_pages_has_no_empty_line_in_it():
    text, marks, _, _ = read(drawn_pdf([lines(50, 700, body) for body in (ONE, TWO, THREE)]))
    assert "\n\n" not in text
    assert [text[start:].split()[0] for start, _ in marks] == ["The", "driven", "town"]
    assert "\n\n" in read(drawn_pdf([lines(50, 700, ["First page"]), lines(50, 700, ["Second page"])]))[0]


# Pages without text


def picture(turn: int = 0) -> Drawn:
    return Drawn(rule(100, 100, 300, 400), turn=turn)


def test_pages_without_text_are_named():
    text = lines(50, 700, ["Some text."])
    assert read(drawn_pdf([text, picture(), text]))[2] == ["page 2 has no text (a picture or a scan)"]
    many = drawn_pdf([text, picture(), picture(90), text, picture()])
    assert read(many)[2] == ["pages 2 to 3 and 5 have no text (pictures or scans)"]


def test_empty_pages_are_not_named():
    assert read(drawn_pdf([lines(50, 700, ["Some text."]), "", " "]))[2] == []


class Fake:
    """Reads each picture but the turned ones."""

    def read(self, shown) -> tuple[str, list]:
        return ("a read pic-\nture", []) if shown.shape[0] > shown.shape[1] else ("", [])


def test_only_pages_that_ocr_could_not_read_are_named(monkeypatch):
    monkeypatch.setattr(optical, "is_installed", lambda: True)
    monkeypatch.setattr(optical, "OpticalReader", Fake)
    text = lines(50, 700, ["Some text of the harbour."])
    both = read(drawn_pdf([text, picture(), picture(90)]), "auto")
    assert both[0].endswith("a read picture")
    assert both[2] == ["page 3 has no text (a picture or a scan)"]
    commented = Drawn(picture().content, (note_object("Text", "5 5 9 9", "Scan it anew"),))
    read_all = read(drawn_pdf([text, commented]), "auto")
    assert read_all[0].endswith("a read picture\n\nComment: Scan it anew")
    assert read_all[2] == []


def test_a_page_whose_font_names_no_letters_is_named():
    text = read(pdf(["A page of text that is long enough " * 3, "\x01\x02\x03 \x04", "More text."]))
    assert text[2] == ["page 2 has a font that does not say which letters it draws"]


# Damage


def test_a_damaged_page_costs_that_page_alone():
    data = drawn_pdf([lines(50, 700, [f"Sentence {i}."]) for i in range(1, 5)])
    second = data.index(b"/Type/Page/", data.index(b"/Type/Page/") + 1)
    data = data[:second] + b"/Type/Pxge/" + data[second + 11 :]
    text, marks, unread, builder = read(data)
    if unread:
        assert unread == ["page 2 is damaged"]
        assert "Sentence 2." not in text
    assert [label for _, label in marks] == ["1", "2", "3", "4"]
    assert "Sentence 1." in text
    assert "Sentence 4." in text
    assert {row[0] for row in builder.boxes} >= {0, 2, 3}


def test_pages_that_are_not_there_are_named():
    text, marks, unread, _ = read(pdf(["Only one page."], count=4))
    assert text == "Only one page."
    assert len(marks) == 4
    assert unread == ["pages 2 to 4 are damaged"]


def test_a_file_that_claims_a_thousand_million_pages_ends_soon():
    _, _, unread, _ = read(pdf(["Only one page."], count=10**6))
    assert any("damaged" in line for line in unread)


def test_a_file_without_one_page_that_can_be_read_is_refused():
    with pytest.raises(DocumentError, match="none of its pages can be read"):
        read(pdf(["x"], count=2).replace(b"/Kids[5 0 R]", b"/Kids[9 0 R]"))


def test_a_page_that_raises_is_damaged(monkeypatch):
    def fail(page) -> bool:
        raise ValueError("no picture")

    monkeypatch.setattr(read_pdf, "has_ink", fail)
    text = lines(50, 700, ["Some text."])
    assert read(drawn_pdf([text, picture(), text]))[2] == ["page 2 is damaged"]


# Word boxes


def words_of(builder) -> list[tuple[int, str, tuple[float, float]]]:
    """Each word box: its page, its characters, and where it begins, in page units from the lower left."""
    text, marks = builder.done()
    starts = [start for start, kind, _ in marks if kind == "page"]
    return [
        (page, text[box.start : box.end], (round(box.left * 600 / GRID), round(800 - box.bottom * 800 / GRID)))
        for page, _, _, packed in builder.boxes
        for box in unpack(packed, starts[page])
    ]


def test_word_boxes_follow_joined_words_moved_lines_and_dropped_numbers():
    bodies = [
        ["He saw the har-", "bour of the informa-"],
        ["tion board. It was", "old and of gran-"],
        ["ite, and high."],
    ]
    drawn = [
        [at(50, 770, "Annals"), *lines(50, 700, body), at(290, 30, str(number))]
        for number, body in enumerate(bodies, 1)
    ]
    text, _, _, builder = read(drawn_pdf(drawn))
    assert text == "Annals\n\nHe saw the harbour of the information board. It was\nold and of granite, and high."
    found = words_of(builder)
    assert "".join(word for _, word, _ in found) == "".join(text.split())
    places = {(page, word): place for page, word, place in found}
    parts = (0, "bour"), (1, "tion"), (2, "ite,")
    assert [places[part][0] for part in parts] == [50, 50, 50]
    assert places.keys() >= {*parts, (0, "har"), (0, "informa"), (1, "gran")}


def test_word_boxes_of_columns_values_and_comments_are_where_these_stand():
    rows = zip(lines(50, 700, ONE, size=5), lines(310, 700, TWO, size=5), strict=True)
    field = "<</Type/Annot/Subtype/Widget/FT/Tx/F 4/Rect[120 495 300 512]/T(a)/V(Marisol Quintero)>>"
    over = (field, note_object("Text", "500 300 520 320", "Check this"))
    drawn = Drawn("\n".join([*(line for row in rows for line in row), at(50, 500, "Name:")]), over)
    _, _, _, builder = read(drawn_pdf([drawn]))
    places = {word: place for _, word, place in words_of(builder)}
    assert places["Marisol"] == (120, 495)
    assert places["Quintero"][0] > 150
    assert 500 <= places["Check"][0] < 520
    assert places["driven"][0] == 310
