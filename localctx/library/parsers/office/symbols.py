"""Converts letters of the fonts Symbol, Wingdings and Webdings to Unicode. Office stores such a letter as its number in
the font.
"""

_SYMBOL = {
    0x20: " !∀#∃%&∋()∗+,−./0123456789:;<=>?",  # noqa: RUF001
    0x40: "≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_",
    0x60: "‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼",  # noqa: RUF001
    0xA0: "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵",  # noqa: RUF001
    0xC0: "ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓",  # noqa: RUF001
    0xE0: "◊⟨®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪",
    0xF1: "⟩∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭",
}
_WINGDINGS = {
    0x20: " ✏✂✁👓🔔📖🕯☎✆",
    0x36: "⌛⌨",
    0x3F: "✍",
    0x41: "✌",
    0x43: "👍👎☜☞☝☟🖐☺😐☹💣☠⚐",
    0x51: "✈☼💧❄",
    0x58: "✠✡☪☯",
    0x5D: "☸♈♉♊♋♌♍♎♏♐♑♒♓",
    0x6C: "●❍■□❐❑❒⬧⧫◆❖⬥☒",
    0x7D: "❝❞",
    0x80: "⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿",
    0x9E: "·•▪○",
    0xA7: "▪☐",
    0xAB: "★✶✴✹✵",
    0xD8: "➢",
    0xDF: "←→↑↓↖↗↙↘⬅➔⬆⬇",
    0xEF: "⇦⇨⇧⇩⬄⇳",
    0xFB: "✗✓☒☑",
}
_FONTS = {
    "symbol": _SYMBOL,
    "wingdings": _WINGDINGS,
    "wingdings 2": {0x4F: "✗✓☒☑☒", 0x97: "•", 0xA3: "☐"},
    "webdings": {0x61: "✓", 0x63: "☐", 0x67: "■", 0x72: "✗"},
}
_TABLES = {
    font: {first + i: letter for first, letters in table.items() for i, letter in enumerate(letters)}
    for font, table in _FONTS.items()
}
_BULLETS = {0xF0B7: "•", 0xF0A7: "▪"}  # bullets that lose their font when they are copied
_PRIVATE = 0xF000  # Office writes letter 0x41 of such a font as U+F041


def letter(font: str, code: int) -> str:
    """Returns the Unicode character for the character with the number ``code`` in the symbol font ``font``, or "" if it
    is unknown.
    """
    return _TABLES.get(font.lower(), {}).get(code - _PRIVATE if code >= _PRIVATE else code, "")


def in_unicode(font: str, text: str) -> str:
    """Returns ``text`` with characters of a symbol font converted to Unicode. Unknown characters stay unchanged."""
    if font.lower() not in _TABLES:
        return text.translate(_BULLETS)
    return "".join(letter(font, ord(one)) or one for one in text)


def is_private(text: str) -> bool:
    """Returns True if ``text`` has a character of a symbol font that was not converted to Unicode."""
    return any(_PRIVATE <= ord(one) <= _PRIVATE + 0xFF for one in text)
