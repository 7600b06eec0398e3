"""Values of form fields and comments over a PDF's pages: each is in the text at its place, or a line says it is not."""

import pytest
from made_pdfs import Drawn, at, drawn_pdf, field_object, lines, note_object, rule

from localctx.library.parsers.pdf import read_pdf

APPEARANCE = "<</Type/XObject/Subtype/Form/BBox[0 0 200 20]/Length 0>>stream\n\nendstream"
TICKS = "/AP<</N<</Yes 4 0 R/Off 4 0 R>>>>"


def read(*pages: Drawn | list[str], more: str = APPEARANCE) -> tuple[str, list[str]]:
    """The text of a PDF, and what was not read of it."""
    builder = read_pdf.read(drawn_pdf(pages, more=[more]), lambda *of: None, "off", lambda: None)[1]
    return builder.done()[0], builder.unread


def form(drawn: list[str], *over: str, turn: int = 0) -> Drawn:
    return Drawn("\n".join(drawn), over, turn)


def text_field(box: str, value: str, more: str = "") -> str:
    return field_object("Tx", box, f"/V({value}){more}")


def test_values_stand_after_the_names_of_their_fields():
    drawn = [at(50, 740, "Form 27-B"), at(50, 700, "Name:"), at(50, 670, "Street:"), at(320, 670, "Town:")]
    text, unread = read(
        form(
            [*drawn, at(50, 600, "Please return it by Friday.")],
            text_field("120 695 300 712", "Marisol Quintero", "/AP<</N 4 0 R>>"),
            text_field("370 665 500 682", "Lyon"),
            text_field("120 665 300 682", "12 Quay \\(east\\)"),
        )
    )
    assert text == ("Form 27-B\nName: Marisol Quintero\nStreet: 12 Quay (east) Town: Lyon\nPlease return it by Friday.")
    assert unread == []


def test_a_value_under_its_fields_name_stands_after_it():
    drawn = [at(50, 740, "Order"), at(50, 700, "Name"), at(300, 700, "Date"), at(50, 640, "Price")]
    fields = (
        text_field("50 675 250 695", "Gerda Holm"),
        text_field("300 675 450 695", "3 May"),
        text_field("50 615 250 635", "480 EUR"),
    )
    assert read(form(drawn, *fields))[0] == "Order\nName\nGerda Holm\nDate\n3 May\nPrice\n480 EUR"


def test_a_tick_stands_beside_what_is_ticked():
    drawn = [at(80, 640, "I agree"), at(80, 620, "Send me news"), at(80, 600, "red"), at(180, 600, "blue")]
    boxes = (
        field_object("Btn", "60 638 72 650", f"/V/Yes/AS/Yes{TICKS}"),
        field_object("Btn", "60 618 72 630", f"/AS/Off{TICKS}"),
        field_object("Btn", "60 598 72 610", f"/Ff 32768/AS/Off{TICKS}"),
        field_object("Btn", "160 598 172 610", f"/Ff 32768/V/Yes/AS/Yes{TICKS}"),
    )
    assert read(form(drawn, *boxes))[0] == "[x] I agree\n[ ] Send me news\n[ ] red [x] blue"


def test_choices_are_read_as_they_are_shown():
    drawn = [at(50, 700, "Branch:"), at(50, 650, "Days:"), at(50, 600, "Own:")]
    choices = (
        field_object("Ch", "120 695 300 712", "/Ff 131072/Opt[(Lisbon)(Oslo)]/V(Oslo)"),
        field_object("Ch", "120 640 300 670", "/Ff 2097152/Opt[[(m)(Monday)][(t)(Tuesday)][(w)(Wednesday)]]/V[(m)(w)]"),
        field_object("Ch", "120 595 300 612", "/Ff 393216/Opt[(a)]/V(written by hand)"),
    )
    assert read(form(drawn, *choices))[0] == "Branch: Oslo\nDays: Monday, Wednesday\nOwn: written by hand"


def test_a_value_of_several_lines_keeps_them():
    remarks = text_field("120 640 500 712", "The first remark.\\nThe second one.", "/Ff 4096")
    assert read(form([at(50, 700, "Remarks:"), at(50, 600, "End.")], remarks))[0] == (
        "Remarks: The first remark.\nThe second one.\nEnd."
    )


def test_a_value_in_a_letter_outside_of_latin_is_read():
    field = field_object("Tx", "120 695 300 712", f"/V<FEFF{'Ольга'.encode('utf-16-be').hex()}>")
    assert read(form([at(50, 700, "Name:")], field))[0] == "Name: Ольга"


def test_the_values_of_a_ruled_form_are_cells_of_its_rows():
    drawn = [rule(50, y, 300, 1) for y in (700, 680, 660, 640)] + [rule(x, 640, 1, 61) for x in (50, 200, 350)]
    drawn += [at(55, 685, "Applicant"), at(55, 665, "Amount"), at(55, 645, "Branch")]
    values = zip((681, 661, 641), ("Marisol Quintero", "48250", "Oslo"), strict=True)
    fields = [text_field(f"201 {y} 349 {y + 18}", value) for y, value in values]
    assert read(form(drawn, *fields))[0] == "Applicant\tMarisol Quintero\nAmount\t48250\nBranch\tOslo"


@pytest.mark.parametrize(("turn", "angle", "place"), [(90, 90, "90 100 105 300"), (180, 180, "300 690 500 710")])
def test_a_value_on_a_turned_page_stands_after_its_name(turn, angle, place):
    x, y = (100, 50) if turn == 90 else (550, 696)
    assert read(form([at(x, y, "Name:", 12, angle)], text_field(place, "Ingrid Sund"), turn=turn))[0] == (
        "Name: Ingrid Sund"
    )


def test_what_nobody_sees_is_not_read():
    fields = (
        text_field("120 300 300 320", "secret", "/Ff 8192"),
        text_field("120 240 300 260", "hidden").replace("/F 4", "/F 2"),
        field_object("Tx", "120 200 300 220"),
        field_object("Btn", "120 100 300 120", "/Ff 65536/MK<</CA(Send)>>"),
    )
    assert read(form([at(50, 700, "Name:")], *fields)) == ("Name:", [])


def test_text_written_on_a_page_is_read_at_its_place():
    box = note_object("FreeText", "120 695 300 712", "Approved on Tuesday")
    assert read(form([at(50, 700, "Remark:"), at(50, 600, "End.")], box))[0] == "Remark: Approved on Tuesday\nEnd."


def test_comments_are_named_as_such_after_the_text():
    notes = (
        note_object("Text", "500 700 520 720", "Check this date."),
        note_object("Highlight", "50 695 90 710", "A good point,\nsays Rei."),
        note_object("Link", "50 695 90 710", "nothing"),
        note_object("Popup", "50 695 90 710", "Check this date."),
        note_object("Text", "500 700 520 720", "Accepted set by Rei", "/StateModel(Review)/State(Accepted)"),
        note_object("Text", "500 700 520 720", "hidden").replace("/F 4", "/F 2"),
    )
    text, unread = read(form(lines(50, 700, ["One line.", "Another."]), *notes))
    assert text == "One line.\nAnother.\n\nComment: Check this date.\nComment: A good point,\nsays Rei."
    assert unread == []


def test_a_comment_divides_no_sentence_that_runs_over_the_page():
    first = form(
        lines(50, 700, ["The board met to hear the report. It was read", "by the surveyor, who keeps the"]),
        note_object("Text", "500 700 520 720", "Check this."),
    )
    text, _ = read(first, lines(50, 700, ["light of the pier. He is old."]))
    assert text == (
        "The board met to hear the report.\n\nComment: Check this.\n\nIt was read\nby the surveyor, who keeps the\n"
        "light of the pier. He is old."
    )


def test_what_cannot_be_read_over_a_page_is_named():
    over = (
        "<</Type/Annot/Subtype/FileAttachment/F 4/Rect[1 1 9 9]>>",
        "<</Type/Annot/Subtype/Stamp/F 4/Rect[1 1 9 9]/AP<</N 4 0 R>>>>",
        "<</Type/Annot/Subtype/FreeText/F 4/Rect[1 1 9 9]/AP<</N 4 0 R>>>>",
        "<</Type/Annot/Subtype/Highlight/F 4/Rect[1 1 9 9]>>",
    )
    text, unread = read(form([at(50, 700, "Text.")], *over))
    assert text == "Text."
    assert unread == ["a file attached to page 1", "a stamp on page 1", "a text box on page 1"]


def test_a_form_that_only_adobe_reader_shows_is_named():
    data = drawn_pdf([[at(50, 700, "Please wait...")]])
    data = data.replace(b"/Pages 2 0 R>>", b"/Pages 2 0 R/AcroForm<</Fields[]/XFA(x)>>/NeedsRendering true>>")
    builder = read_pdf.read(data, lambda *of: None, "off", lambda: None)[1]
    assert builder.done()[0] == "Please wait..."
    assert builder.unread == ["the form, which only Adobe Reader shows (XFA)"]
