"""Bytes to text: what is declared wrongly, not at all, or damaged costs no letter more than it must."""

# ruff: noqa: RUF001 (signs that look alike, as documents have them)

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localctx.library.parsers.encodings import codec_name, decode_mostly

GERMAN = "Der Bürgermeister von Schönau heißt Jörg Müller. Die Brücke über die Weiße Elster ist fünf Meter lang.\n"
POLISH = "Zażółć gęślą jaźń. Burmistrz Łodzi powiedział, że most będzie zamknięty w środę.\n"
JAPANESE = "港の番人は佐藤という老人である。船は三隻あり、毎朝六時に出港する。\n"
CHINESE = "港口的管理员是一位姓李的老人。每天早上六点有三艘船出港，船上装着米和茶叶。\n"
KOREAN = "항구의 관리인은 김씨라는 노인이다. 배는 세 척이 있으며 매일 아침 여섯 시에 출항한다.\n"
RUSSIAN = "Капитан порта объявил, что судно придёт в четверг утром, а груз разгрузят в пятницу.\n"
GREEK = "Ο λιμενάρχης είπε ότι το πλοίο θα φτάσει την Πέμπτη το πρωί και το φορτίο αύριο.\n"
ARABIC = "قال رئيس البلدية إن الجسر سيغلق يوم الأربعاء لأن النهر عميق جدا.\n"
HINDI = "बंदरगाह का रखवाला एक बूढ़ा आदमी है। तीन जहाज़ हर सुबह निकलते हैं।\n"
TEXTS = [GERMAN, POLISH, JAPANESE, CHINESE, KOREAN, RUSSIAN, GREEK, ARABIC, HINDI]


def lost(text: str, read: str) -> int:
    """The letters of ``text`` that ``read`` lacks."""
    return sum((Counter(text) - Counter(read)).values())


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(TEXTS), st.dictionaries(st.integers(0, 10_000), st.integers(0, 255), max_size=9))
def test_a_damaged_byte_of_utf_8_costs_one_letter_at_most(text, damage):
    text = text * 9  # nine damages are few beside so many letters
    data = bytearray(text.encode())
    for place, byte in damage.items():
        data[place % len(data)] = byte
    read = decode_mostly(bytes(data))
    assert read.encoding == "utf-8"
    assert lost(text, read.text) <= len(damage)
    assert read.is_text


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(
        [(GERMAN, "cp1252"), (POLISH, "cp1250"), (RUSSIAN, "cp1251"), (GREEK, "cp1253"), (ARABIC, "cp1256")]
    ),
    st.dictionaries(st.integers(0, 10_000), st.integers(0, 255), max_size=9),
)
def test_a_damaged_byte_of_a_declared_encoding_costs_one_letter(case, damage):
    text, encoding = case[0] * 4, case[1]
    data = bytearray(text.encode(encoding))
    for place, byte in damage.items():
        data[place % len(data)] = byte
    assert lost(text, decode_mostly(bytes(data), encoding).text) <= len(damage)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *((text, "utf-8") for text in TEXTS),
        *((text, "utf-16") for text in TEXTS),
        *((text, "utf-16-le") for text in TEXTS),
        *((text, "utf-16-be") for text in TEXTS),
        (GERMAN, "cp1252"),
        (POLISH, "cp1250"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8_r"),
        (GREEK, "cp1253"),
        (ARABIC, "cp1256"),
        (JAPANESE, "cp932"),
        (JAPANESE, "euc_jp"),
        (JAPANESE, "iso2022_jp"),
        (CHINESE, "gb18030"),
        (CHINESE.replace("员", "員").replace("点", "點").replace("装着", "裝著").replace("叶", "葉"), "big5"),
        (KOREAN, "cp949"),
    ],
)
def test_an_encoding_that_is_not_declared_is_found(text, encoding):
    if encoding == "big5":
        text = text.encode("big5", "ignore").decode("big5")
    assert decode_mostly((text * 3).encode(encoding)).text == text * 3


@pytest.mark.parametrize(
    ("data", "declared", "text"),
    [
        ("It costs €500, and that’s “final”".encode("cp1252"), "iso-8859-1", "It costs €500, and that’s “final”"),
        ("朱镕基 wrote it".encode("gbk"), "gb2312", "朱镕基 wrote it"),
        ("①髙橋".encode("cp932"), "shift_jis", "①髙橋"),
        (b"\xad\xa1\xfc\xe2\xb6\xb6", "euc-jp", "①髙橋"),
        (b"\x1b$B-!|b66\x1b(B", "iso-2022-jp", "①髙橋"),
        (b"\x1b$B-!|b66\x1b(B", "", "①髙橋"),
        ("뷁 뢔".encode("cp949"), "euc-kr", "뷁 뢔"),
        ("Größe".encode(), "us-ascii", "Größe"),
        ("Größe".encode(), "unknown-8bit", "Größe"),
        ("Größe".encode(), "iso-8859-1", "Größe"),
        ("Größe und Länge".encode("cp1252"), "us-ascii", "Größe und Länge"),
        ("Größe und Länge".encode("cp1252"), "utf-8", "Größe und Länge"),
        ("Reka Łódź".encode("cp1250"), "x-cp1250", "Reka Łódź"),
        ("Привет".encode("koi8_r"), "koi8", "Привет"),
        ("สวัสดี".encode("cp874"), "tis-620", "สวัสดี"),
        ("Größe".encode("utf-7"), "utf-7", "Größe"),
        ("text".encode("utf-16-le") + b"x", "", "text\ufffd"),
        ("Flüsse".encode("utf-16")[:-1], "", "Flüss\ufffd"),
        (b"plain", "rot13", "plain"),
        (b"plain", "base64", "plain"),
        (b"plain", "undefined", "plain"),
        (b"", "", ""),
        (b"text" + bytes(40), "", "text"),
    ],
)
def test_what_is_declared_means_what_programs_write_under_that_name(data, declared, text):
    assert decode_mostly(data, declared).text == text


def test_western_letters_in_utf_8_are_read_where_they_clearly_are():
    mixed = "Die Größe – Länge. ".encode() * 3 + b"That\x92s Zo\xeb, who said \x93yes\x94 for \x80500."
    read = decode_mostly(mixed)
    assert read.text.endswith("That’s Zoë, who said “yes” for €500.")
    assert (read.bad, read.unread) == (0, "")


def test_bad_bytes_are_counted_in_a_line():
    one, two = "Größe, größer\xff.".encode("latin-1"), "Größe, größer.".encode() + b"\xe3\x81"
    assert decode_mostly("Größe, gro".encode() + b"\xffer.").unread == ""  # ÿ beside letters
    assert decode_mostly("Größe ".encode() + b"\xff\xfe Ende").unread == "2 bytes that fit no encoding"
    assert decode_mostly("Größe\0 Ende".encode()).unread == "1 byte that fits no encoding"
    assert decode_mostly(two).text == "Größe, größer.\ufffd"
    assert decode_mostly(one).encoding == "cp1252"


@pytest.mark.parametrize("seed", range(5))
def test_what_is_no_text_is_told_from_text(seed):
    import random

    dice = random.Random(seed)
    assert not decode_mostly(dice.randbytes(5000)).is_text
    assert not decode_mostly(bytes(dice.choices(range(4), k=5000))).is_text


def test_names_of_encodings_are_those_of_browsers():
    names = {
        "Latin1": "cp1252",
        " ISO-8859-9 ": "cp1254",
        "x-sjis": "cp932",
        "windows-874": "cp874",
        "dos-866": "cp866",
    }
    names |= {"iso-8859-8-i": "iso8859-8", "iso88592": "iso8859-2", "gb2312": "gb18030", "nonsense": "", "hex": ""}
    assert {name: codec_name(name) for name in names} == names


@pytest.mark.parametrize("control", [0x1B, 0x00, 0x1A, 0x0E, 0x80])
@pytest.mark.parametrize("encoding", ["cp1252", "cp1251", "utf-16"])
def test_a_control_character_costs_one_letter(encoding, control):
    text = (RUSSIAN if encoding == "cp1251" else GERMAN) * 20
    data = bytearray(text.encode(encoding))
    data[402] = control
    read = decode_mostly(bytes(data))
    assert read.is_text
    assert lost(text, read.text) == 1


def test_utf_16_that_begins_with_nul_is_no_utf_32():
    text = GERMAN * 9
    assert decode_mostly(f"\0{text}".encode("utf-16")).text.endswith(text)
    assert decode_mostly(text.encode("utf-32")).text == text
