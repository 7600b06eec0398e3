"""E-mail: texts in whatever encoding they declare, mailboxes, and attached files read by their content."""

# ruff: noqa: RUF001 (letters of many languages)

import base64
import quopri
import sys
import time

import pytest
from made_files import pdf
from office_files import message, pptx, rents, saved

from localctx.library.parsers import parse_child
from localctx.library.parsers.mail.attachments import AttachedFiles, time_limit
from localctx.library.parsers.text_builder import TextBuilder
from localctx.library.read_document import Document, read_document

HEAD = b"From: Ann <ann@example.org>\nDate: Mon, 04 May 2026 10:00:00 +0200\nMIME-Version: 1.0\n"
ENVELOPE = "From ann@example.org Mon May  4 10:00:00 2026"


@pytest.fixture
def read(tmp_path, parsed_here):
    """Reads bytes as a file of a name."""

    def read(data: bytes, name: str = "a.eml") -> Document:
        (tmp_path / name).write_bytes(data)
        return read_document(str(tmp_path / name))

    return read


def labels(document: Document, kind: str) -> list[str]:
    return [s.label for s in document.spans if s.kind == kind]


# Encodings


@pytest.mark.parametrize(
    ("declared", "written", "text"),
    [
        ("iso-8859-1", "cp1252", "Das kostet 75 € – „endgültig“ …"),
        ("us-ascii", "cp1252", "The mayor’s café"),
        ("us-ascii", "utf-8", "Größere Mühlen für Žižkov"),
        ("unknown-8bit", "utf-8", "El niño vive en Cádiz"),
        ("gb2312", "gb18030", "镕基先生的电话号码是四七一一，请在星期二以前打给他。"),
        ("ks_c_5601-1987", "cp949", "항구의 관리인은 이순신이며 그는 부산에 살고 있습니다."),
        ("shift_jis", "cp932", "会長は髙橋さんです。①から③までの部屋を使います。"),
        ("big5", "big5hkscs", "這個港口的主管是陳大文，他住在台北市的東邊。"),
        ("iso-8859-9", "cp1254", "Şirketin müdürü Gökçe Yıldız’dır – İstanbul"),
        ("windows-1251", "cp1251", "Смотритель маяка живёт в Варне."),
        ("koi8-r", "koi8-r", "Смотритель маяка живёт в Варне."),
        ("iso-8859-2", "utf-8", "Zażółć gęślą jaźń"),
    ],
)
def test_a_body_is_read_in_the_encoding_it_is_written_in(read, declared, written, text):
    head = f'Subject: S\nContent-Type: text/plain; charset="{declared}"\nContent-Transfer-Encoding: 8bit\n\n'
    document = read(HEAD + head.encode() + text.encode(written))
    assert document.text.endswith(f"\n\n{text}")
    assert not document.row.unread


def test_one_bad_byte_costs_one_letter_and_is_said(read):
    body = b"Subject: Pay\nContent-Type: text/plain; charset=utf-8\n\n" + "Jörg zahlt für ".encode() + b"\xf8\xb7 alles"
    document = read(HEAD + body)
    assert "Jörg zahlt für" in document.text
    assert document.text.endswith("alles")
    assert "no encoding in the message Pay" in document.row.unread


def test_an_encoding_that_only_the_page_declares(read):
    page = '<html><head><meta charset="koi8-r"></head><body><p>Ключ лежит под камнем.</p></body></html>'
    assert read(HEAD + b"Content-Type: text/html\n\n" + page.encode("koi8-r")).text.endswith("Ключ лежит под камнем.")


@pytest.mark.parametrize(
    ("raw", "subject"),
    [
        (b"=?iso-8859-1?Q?50_=80_=96_=93now=94?=", "50 € – “now”"),
        (b"=?us-ascii?Q?Caf=C3=A9?=", "Café"),
        (
            b"=?gb2312?B?" + base64.b64encode("镕基的电话号码是四七一一".encode("gb18030")) + b"?=",
            "镕基的电话号码是四七一一",
        ),
        (b"=?utf-8?B?w7w=?= and =?utf-8?Q?=C3=B6?=", "ü and ö"),
        (b"=?utf-8?Q?one_?=\n =?utf-8?Q?word?=", "one word"),
        (b"plain words\n that are folded", "plain words that are folded"),
        ("Grüße aus Łódź".encode(), "Grüße aus Łódź"),
        ("Der Schlüssel für Müller".encode("latin-1"), "Der Schlüssel für Müller"),
        (b"=?nonsense?Q?Caf=C3=A9?=", "Café"),
        (b"=?utf-8?B?x?= rest", "=?utf-8?B?x?= rest"),
        (b"a =?utf-8*de?Q?=C3=BC?= b", "a ü b"),
    ],
)
def test_subjects_are_decoded(read, raw, subject):
    assert labels(read(HEAD + b"Subject: " + raw + b"\n\nbody"), "heading") == [subject]


def test_names_are_decoded(read):
    document = read(
        b"From: =?iso-8859-1?Q?J=F6rg_=80?= <j@example.org>\nTo: "
        + "Łucja <l@example.org>".encode()
        + b"\nDate: x\n\nbody"
    )
    assert "From: Jörg € <j@example.org>\nTo: Łucja <l@example.org>" in document.text


# Mailboxes


def mailbox(*bodies: str, between: str = "\n", newline: str = "\n") -> bytes:
    texts = (
        f"{ENVELOPE}\nFrom: a@example.org\nDate: today\nSubject: S{i}\n\n{body}\n{between}"
        for i, body in enumerate(bodies)
    )
    return "".join(texts).replace("\n", newline).encode()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("between", ["\n", ""])
@pytest.mark.parametrize(
    "line",
    [
        "From the roof I see it.\nNote: all is well.",
        "From Monday at 10:00 on\nTo: be paid",
        "From: me",
        "From May 4 10:00:00 2026 it was open\nWhen: always",
        "From bob@example.org\nRe: the boat",
    ],
)
def test_lines_that_begin_with_from_are_text(read, line, between, newline):
    document = read(mailbox(f"Dear Bo,\n\n{line}\n\nBye", "second", between=between, newline=newline), "a.mbox")
    assert labels(document, "message") == ["1", "2"]
    assert f"Dear Bo,\n\n{line}\n\nBye" in document.text


@pytest.mark.parametrize(
    "envelope",
    [
        "From - Mon May 04 10:00:00 2026",
        "From MAILER-DAEMON Mon May  4 10:00:00 2026",
        "From 1234567@xxx Mon May 04 10:00:00 +0000 2026",
        "From ann@example.org Mon, 4 May 2026 10:00:00 +0200",
        "From ann@example.org  Mon May  4 10:00 2026",
        "From ann@example.org Mon May  4 10:00:00 CEST 2026",
        'From "Ann B"@example.org Mon May  4 10:00:00 2026 remote from host',
    ],
)
def test_envelope_lines_of_several_programs_begin_a_message(read, envelope):
    data = mailbox("one", "two").decode().replace(ENVELOPE, envelope)
    assert labels(read(data.encode(), "a.mbox"), "heading") == ["S0", "S1"]


def test_quoted_lines_lose_one_quotation_mark(read):
    text = read(mailbox(">From here\n>>From there\n> From a reply"), "a.mbox").text
    assert text.endswith("From here\n>From there\n> From a reply")


# Attached files


def sent(*files: tuple[bytes, str, str]) -> bytes:
    made = message("Files", "See below.\n")
    for data, name, kind in files:
        made.add_attachment(data, maintype=kind.partition("/")[0], subtype=kind.partition("/")[2], filename=name)
    return bytes(made)


def docx() -> bytes:
    import docx

    made = docx.Document()
    made.add_paragraph("The key is under the stone.")
    return saved(made)


@pytest.mark.parametrize(
    ("data", "name", "text", "place"),
    [
        (b"name,rent,town\nAda,120,Varna\nBo,90,Olmen\n", "rents.csv", "name: Bo; rent: 90; town: Olmen", "rents.csv"),
        ("Höhe: 3 m".encode("cp1252"), "note.txt", "Höhe: 3 m", "note.txt"),
        ("Höhe: 3 m".encode("utf-16"), "note", "Höhe: 3 m", "note"),
        (b"<html><body><p>One</p><p>Two</p></body></html>", "page", "One\n\nTwo", "page"),
        (docx(), "letter.docx", "The key is under the stone.", "letter.docx"),
        (docx(), "letter.bin", "The key is under the stone.", "letter.bin"),
        (rents(), "book.xlsx", "Flat: Second; Rent: 0.3; From: 2026-05-01", "book.xlsx"),
        (pptx(), "talk.pptx", "The Amazon is wide.", "talk.pptx, slide 2"),
        (pdf(["One page.", "Another page."]), "a.pdf", "Another page.", "a.pdf, page 2"),
    ],
)
def test_attached_files_are_read_by_their_content(read, data, name, text, place):
    document = read(sent((data, name, "application/octet-stream")))
    at = document.text.index(text)
    assert [s.label for s in document.spans if s.kind == "heading" and s.start <= at < s.end] == [place]
    assert f"Attachment: {name} (application/octet-stream" in document.text


@pytest.mark.parametrize("encode", [base64.encodebytes, quopri.encodestring, bytes], ids=["base64", "qp", "8bit"])
@pytest.mark.parametrize("kind", ["message/rfc822", "application/octet-stream"])
def test_attached_messages_are_read_however_they_are_sent(read, encode, kind):
    inner = HEAD + "Subject: Inner\nContent-Type: text/plain; charset=utf-8\n\nJörg’s code = 4711\n".encode()
    how = {"encodebytes": "base64", "encodestring": "quoted-printable"}.get(encode.__name__, "8bit")
    head = f"Content-Type: {kind}; name=f.eml\nContent-Disposition: attachment\nContent-Transfer-Encoding: {how}\n\n"
    outer = b"Subject: Outer\nContent-Type: multipart/mixed; boundary=X\n\n--X\n\nSee.\n--X\n"
    document = read(HEAD + outer + head.encode() + encode(inner) + b"\n--X--\n")
    assert labels(document, "heading") == ["Outer", "Inner"]
    assert document.text.endswith("Jörg’s code = 4711")


def test_what_is_not_read_is_named(read):
    files = [
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "photo.jpg", "image/jpeg"),
        (bytes(range(256)) * 9, "song.mp3", "audio/mpeg"),
        (docx()[:900], "cut.docx", "application/msword"),
        (b"", "nothing.txt", "application/octet-stream"),
        (b"fine", "fine.txt", "application/octet-stream"),
    ]
    document = read(sent(*files))
    assert document.text.endswith("fine")
    assert document.row.unread.splitlines() == [
        "the attachment photo.jpg (a picture)",
        "the attachment song.mp3 (not text)",
        "the attachment cut.docx (a damaged zip, Office or EPUB file)",
        "the attachment nothing.txt (has no text in it)",
    ]


def test_what_a_part_of_an_attached_file_lacks_is_named(read):
    document = read(sent((rents(), "book.xlsx", "application/octet-stream")))
    assert document.row.unread == "the hidden sheet Lists in the attachment book.xlsx"


@pytest.mark.process
def test_an_attached_file_that_takes_too_long_or_fails_costs_only_itself():
    def slow(kind: str, data: bytes) -> TextBuilder:
        while True:
            pass

    def failing(kind: str, data: bytes) -> TextBuilder:
        raise KeyError(kind)

    from localctx.errors import DocumentError

    for parse, left, problem in ((slow, 1.2, "too long"), (slow, 0.1, "too long"), (failing, 60, "damaged")):
        with pytest.raises(DocumentError, match=problem):
            AttachedFiles(parse, lambda left=left: left).read(rents(), "a.xlsx", "")


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="no such timer")
def test_a_file_within_a_file_leaves_the_time_limit_around_it():
    def spend(seconds: float) -> None:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    def read_nested() -> None:
        with time_limit(1):
            with time_limit(0.8):
                spend(0.1)
            spend(3)

    with pytest.raises(TimeoutError):
        read_nested()


def test_limits_that_an_attached_file_raises_stay_raised(monkeypatch):
    request = {"what": "eml", "limits": (60, 1000)}

    def parse(inner, data, progress):
        inner["limits"] = (120, 5000)  # as OCR does
        return "pdf", TextBuilder()

    monkeypatch.setattr(parse_child, "_parse", parse)
    parse_child._attached(request, "pdf", b"")
    assert request == {"what": "eml", "limits": (120, 5000)}


def test_a_delivery_report_is_read(read):
    report = (
        b"Content-Type: multipart/report; boundary=X\n\n--X\n\nNot delivered.\n--X\n"
        b"Content-Type: message/delivery-status\n\n"
        b"Reporting-MTA: dns; mx\n\nFinal-Recipient: rfc822; bo@example.org\nStatus: 5.1.1\n--X--\n"
    )
    assert "Final-Recipient: rfc822; bo@example.org" in read(HEAD + report).text


def test_names_of_attached_files_are_decoded(read):
    made = message("Files", "See.\n")
    made.add_attachment(b"x", maintype="application", subtype="octet-stream", filename="Größe.txt")
    raw = bytes(made)
    assert "Attachment: Größe.txt (" in read(raw).text
    head = HEAD + b"Content-Type: multipart/mixed; boundary=X\n\n"
    plain = b'--X\nContent-Type: text/plain; name="Gr\xf6\xdfe f\xfcr M\xfcller.txt"\n\nx\n--X--\n'
    assert "Attachment: Größe für Müller.txt (" in read(head + plain).text


def test_attached_texts_are_read_as_files_of_their_kind(read):
    subtitles = b"1\n00:00:01,000 --> 00:00:02,000\n<i>The pilot is Gerda Holm.</i>\n"
    document = read(
        sent((subtitles, "a.srt", "text/plain"), (b"\\section{Tower} The bell.", "b.tex", "text/plain")), "m.eml"
    )
    assert "The pilot is Gerda Holm." in document.text
    assert "-->" not in document.text
    assert "Tower\n\nThe bell." in document.text
