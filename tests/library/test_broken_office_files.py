"""Broken and hostile files of the new formats: each costs one line with a remedy, in bounded time and memory."""

import re

import pytest
from made_files import old_office, with_member, zipped
from office_files import RTF, mbox, message, odp, ods, odt, pptx, rents

from localctx.errors import DocumentError
from localctx.library.parsers.sandbox import ReadOptions, SandboxLimits, parse
from localctx.library.read_document import read_document

LAUGHS = "".join(f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 10))
BOMB = f"<!DOCTYPE l [<!ENTITY a0 'ha'>{LAUGHS}]>"
SHEET = "xl/worksheets/sheet1.xml"
FAR = '<sheetData><row r="1"><c r="A1"><v>1</v></c></row><row r="9"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
MAIL = b"From: a@b\nDate: today\nMIME-Version: 1.0\n"
MAX_BYTES = 256 << 20


def member(archive: bytes, name: str) -> str:
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return opened.read(name).decode()


def with_bomb(archive: bytes, name: str, word: str) -> bytes:
    """Puts an entity bomb in place of a word."""
    text = member(archive, name)
    declaration = text.index("?>") + 2 if text.startswith("<?xml") else 0
    return with_member(archive, name, text[:declaration] + BOMB + text[declaration:].replace(word, "&a9;", 1))


def flipped(data: bytes, every: int) -> bytes:
    return bytes(byte ^ 16 if i % every == every // 2 else byte for i, byte in enumerate(data))


def broken() -> dict[str, bytes]:
    deck, book, words, talk, sheet = pptx(), rents(), odt(), odp(), ods()
    slide = "ppt/slides/slide1.xml"
    nested = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (i, i) for i in range(1500))
    empty = b" " * (MAX_BYTES + 1)
    return {
        "cut.pptx": deck[: len(deck) // 2],
        "cut.xlsx": book[: len(book) // 2],
        "cut.odt": words[:-30],
        "cut.odp": talk[:200],
        "cut.ods": sheet[: len(sheet) // 3],
        "flipped.pptx": flipped(deck, 97),
        "flipped.xlsx": flipped(book, 499),
        "flipped.odt": flipped(words, 499),
        "flipped.ods": flipped(sheet, 499),
        "bomb.xlsx": with_member(book, SHEET, empty),
        "bomb.odp": with_member(talk, "content.xml", empty),
        "laughs.pptx": with_bomb(deck, slide, "All rivers"),
        "laughs.odt": with_bomb(words, "content.xml", "Rivers"),
        "laughs.odp": with_bomb(talk, "content.xml", "All rivers"),
        "laughs.ods": with_bomb(sheet, "content.xml", "First"),
        "locked.xlsx": old_office("EncryptedPackage"),
        "locked.odp": with_member(talk, "META-INF/manifest.xml", "<m><encryption-data/></m>"),
        "deep.pptx": with_member(deck, slide, f"<a>{'<b>' * 9000}{'</b>' * 9000}</a>"),
        "deep.eml": MAIL + nested + b"Content-Type: text/plain\n\nx",
        "deep.rtf": b"{\\rtf1 " + b"{" * 3_000_000 + b"}",
        "old.doc": old_office("WordDocument"),
        "old.ppt": old_office("PowerPoint Document"),
        "a.msg": old_office("__properties_version1.0"),
        "broken.xls": old_office("Workbook"),
        "without-messages.mbox": b"a text, and no message in it\n",
        "no-sheets.xlsx": zipped({"xl/x": ""}),
        "no-slides.pptx": zipped({"ppt/x": "", "_rels/.rels": "<r/>"}),
        "no-text.odt": zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": ""}),
        "drawing.odg": zipped({"mimetype": "application/vnd.oasis.opendocument.graphics", "content.xml": "<x/>"}),
        "numbers.numbers": zipped({"Index/Document.iwa": ""}),
        "empty.rtf": b"{\\rtf1}",
    }


@pytest.mark.slow
def test_thirty_broken_files_cost_a_line_each(tmp_path):
    files = broken()
    assert len(files) > 30
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DocumentError) as e:
            pytest.fail(f"{name} was read: {read_document(str(tmp_path / name)).text[:80]!r}")
        told = str(e.value)
        assert name in e.value.problem, told
        assert e.value.remedy, told
        assert "\n" not in told
        assert "Traceback" not in told
        assert len(told) < 600


def test_a_wrong_extension_is_read_as_what_it_is(tmp_path):
    for name, data in (("a.xlsx", odt()), ("a.pptx", rents()), ("a.eml", pptx()), ("a.odt", RTF), ("a.pdf", ods())):
        (tmp_path / name).write_bytes(data)
        assert read_document(str(tmp_path / name)).text


def test_entities_and_empty_declared_cells_add_nothing(tmp_path):
    slide = "ppt/slides/slide1.xml"
    outside = "?><!DOCTYPE l [<!ENTITY x SYSTEM 'file:///etc/hosts'>]>"
    text = member(pptx(), slide).replace("?>", outside, 1).replace("A talk", "A &x; talk")
    huge = re.sub('<dimension ref="[^"]*"', '<dimension ref="A1:XFD1048576"', member(rents(), SHEET))
    for name, data in (
        ("a.pptx", with_member(pptx(), slide, text)),
        ("a.xlsx", with_member(rents(), SHEET, huge)),
        ("a.eml", MAIL + b"Content-Type: message/rfc822\n\nFrom: x\n" * 40 + b"\nx"),
    ):
        (tmp_path / name).write_bytes(data)
        assert "localhost" not in (read := read_document(str(tmp_path / name)).text)
        assert len(read) < 3000


@pytest.mark.process
@pytest.mark.parametrize(
    ("what", "data", "limits", "problem"),
    [
        (
            "rtf",
            b"{\\rtf1 " + b"{\\b x}" * 1_000_000 + b"}",
            SandboxLimits(seconds=1),
            "more than 1 s",
        ),
        ("eml", MAIL + b"Content-Type: text/html\n\n" + b"<div>" * 200_000, SandboxLimits(seconds=1), "more than 1 s"),
        ("zip", rents(), SandboxLimits(characters=99), "more than 99 characters"),
    ],
)
def test_time_and_text_are_limited(what, data, limits, problem):
    with pytest.raises(DocumentError, match=problem):
        parse(what, data, ReadOptions(limits=limits))


@pytest.mark.slow
def test_a_long_mailbox_gets_time_for_each_message(tmp_path):
    many = mbox(tmp_path, [message(f"n{i}", f"body {i}\n") for i in range(20)]) * 200
    parsed = parse("mbox", many, ReadOptions(limits=SandboxLimits(seconds=2)))
    assert sum(kind == "message" for _, kind, _ in parsed.marks) == 4000
