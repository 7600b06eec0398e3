"""RTF is read as it is printed: letters of all code pages, notes, lists, tables, and no hidden or deleted text."""

import pytest

from localctx.library.read_document import Document, read_document

FONTS = (
    r"{\fonttbl{\f0\fcharset0 Times;}{\f1\fcharset204 Arial Cyr;}{\f2\fcharset128 MS Mincho;}{\f3\fcharset2 Symbol;}"
    r"{\f4\fcharset238 Times CE;}}{\stylesheet{\s1\outlinelevel0 heading 1;}{\*\cs9 Strong;}{\s7 Body Text;}}"
)


@pytest.fixture
def read(tmp_path, parsed_here):
    def read(body: str, head: str = r"\ansi\ansicpg1252\deff0") -> Document:
        (tmp_path / "a.rtf").write_bytes(f"{{\\rtf1{head}{FONTS}{body}}}".encode("latin-1"))
        return read_document(str(tmp_path / "a.rtf"))

    return read


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (r"L\'f6we", "Löwe"),
        (r"{\f1\'d0\'e5\'ea\'e8}", "Реки"),
        (r"{\f2\'93\'fa\'96\'7b}", "日本"),
        (r"{\f4\'9a\'e8}", "šč"),
        (r"\u8364?5 \uc2\u8211\'96\'96x\uc0\u246y", "€5 –xöy"),  # noqa: RUF001
        (r"\uc1{\u26085\'93}{\u26412\'96}", "日本"),
        (r"\u-10179?\u-8704?", "😀"),
        (r"{\upr{lost}{\*\ud \u321 ?\'f3d\u378 ?}}", "Łódź"),
        (r"AB\_12 co\-op a\~b \emdash\rdblquote", "AB-12 coop a\xa0b —”"),
        (r"shown{\v  hidden}{\v0  seen}", "shown seen"),
        (r"rent {\deleted 1200}{\revised 1450}", "rent 1450"),
        (r"two {\deleted\par}months", "two months"),
        (r"{\field{\*\fldinst HYPERLINK x}{\fldrslt a link}} here", "a link here"),
        (r"{\field{\*\fldinst FORMCHECKBOX {\*\formfield{\fftype1\ffres1}}}{\fldrslt }} pets", "[x] pets"),
        (r"{\field{\*\fldinst{\*\formfield{\fftype2\ffres1{\*\ffl no}{\*\ffl yes}}}}}", "yes"),
        (r"one\line two\par\pard\tab three", "one\ntwo\n\nthree"),
        (r"{\*\unknown lost}{\*\bkmkstart b}kept", "kept"),
        (r"{\f3 a} = 2", "α = 2"),  # noqa: RUF001
        (r"\u99999999999?5", "\ufffd5"),
    ],
)
def test_what_a_paragraph_prints(read, body, text):
    assert read(body).text == text


def test_headings_lists_notes_and_comments(read):
    document = read(
        r"\pard\s1 {\listtext\pard 1.\tab}Tower\par\pard\s7 {\pntext\f3\'b7\tab}One bell\chftn"
        r"{\footnote\pard {\super\chftn} Cast by Moll.} rings.{\*\atnid AL}{\*\atnauthor Ann Lee}\chatn"
        r"{\*\annotation\pard Is it?}\par Basalt.\chftn{\footnote\ftnalt\chftn  Paved twice.}\par"
        r"\pard\s1 River\par{\shp{\*\shpinst{\sp{\sn a}{\sv b}}{\shptxt In a box.\par}}{\shprslt again}}It floods."
    )
    assert document.text.split("\n\n") == [
        *("1. Tower", "• One bell rings.", "Footnote 1: Cast by Moll.", "Comment by Ann Lee: Is it?", "Basalt."),
        *("Endnote i: Paved twice.", "River", "It floods.", "In a box."),
    ]
    assert [s.label for s in document.spans if s.kind == "heading"] == ["1. Tower", "River"]


def test_rows_of_a_table_know_their_group(read):
    head = r"\trowd\clvmgf\cellx1\cellx2\pard\intbl "
    more = r"\trowd\clvmrg\cellx1\cellx2\pard\intbl "
    inner = r"\pard\intbl\itap2 x\nestcell y\nestcell{\*\nesttableprops\trowd\cellx1\cellx2\nestrow}\pard\intbl\itap1 "
    document = read(
        head
        + r"No\par rth\cell Halmar\line Harbour\cell\row"
        + more
        + r"\cell Olmen\par Mill\cell\row\pard between\par"
        r"\trowd\cellx1\cellx2\pard\intbl out" + "\\par" + inner + r"side\cell b\cell\row\pard after"
    )
    assert document.text == (
        "No rth\tHalmar Harbour\nNo rth\tOlmen Mill\n\nbetween\n\nout\n\nx\ty\n\nside\n\nb\n\nafter"
    )


def test_headers_are_read_once_and_pictures_objects_and_hidden_text_told(read):
    document = read(
        r"{\header\pard Office of Halmar\par}{\headerf\pard Office of Halmar\par}{\footer 3}{\pict\pngblip 8950}"
        r"{\*\shppict{\pict 89}}{\nonshppict{\pict 89}}{\object{\*\objdata 01}{\result shown}} text{\v secret}"
    )
    assert document.text == "shown text\n\nHeader: Office of Halmar"
    assert document.row.unread_lines == ("2 pictures", "the embedded object", "hidden text")


@pytest.mark.parametrize(
    ("damaged", "text"),
    [
        (r"{\rtf1 One.\par Two", "One.\n\nTwo"),
        (r"{\rtf1{\fonttbl{\f0 Times;}\pard One.\par Two.}", "One.\n\nTwo."),
        (r"{\rtf1 {\listtext 1.\tab One.\par Two.}", "1.\tOne.\n\nTwo."),
        (r"{\rtf1 One}. Two.}", "One. Two."),
        (r"{\rtf1 One \'zz Two\u}", "One zz Two\x00".rstrip("\x00")),
    ],
)
def test_a_damaged_brace_costs_no_words(tmp_path, damaged, text):
    (tmp_path / "a.rtf").write_bytes(damaged.encode())
    assert read_document(str(tmp_path / "a.rtf")).text == text


def test_a_note_called_in_hidden_or_deleted_text_is_hidden_too(read):
    document = read(r"Keep {\deleted gone{\footnote Secret one.}} and {\v gone{\footnote Secret two.}}end.\par")
    assert document.text.split() == ["Keep", "and", "end."]
    assert document.row.unread == "hidden text"


@pytest.mark.parametrize(
    ("code_page", "letters", "text"),
    [
        (20866, r"\'f0\'cf\'d2\'d4", "Порт"),
        (28595, r"\'bf\'de\'e0\'e2", "Порт"),
        (10007, r"\'8f\'ee\'f0\'f2", "Порт"),
        (936, r"\'81\'a4", "仱"),
        (1252, r"\'80 5", "€ 5"),
        (99999, r"\'80 5", "€ 5"),
    ],
)
def test_letters_of_the_files_code_page(read, code_page, letters, text):
    assert read(rf"\pard {letters}\par", rf"\ansi\ansicpg{code_page}\deff9").text == text
