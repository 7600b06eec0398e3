"""Formats numbers as lists and notes print them: 3, 03, III, c, 3rd, 三, ③. Formats have the names that Word uses."""

from collections.abc import Iterator, Sequence

MARKERS = {"1": "decimal", "a": "lowerAlphabetic", "A": "upperAlphabetic", "i": "lowerRoman", "I": "upperRoman"}
"""The names of formats by the letters for them in HTML, LaTeX and OpenDocument."""

_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x")),
    *((9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
_LATIN = "abcdefghijklmnopqrstuvwxyz"
_RUSSIAN = "абвгдежзиклмнопрстуфхцчшщыэюя"
_GREEK = "αβγδεζηθικλμνξοπρστυφχψω"
_ARABIC = "أبتثجحخدذرزسشصضطظعغفقكلمنهوي"
_HEBREW = dict(zip("תשרקצפעסנמלכי", (400, 300, 200, 100, 90, 80, 70, 60, 50, 40, 30, 20, 10), strict=True))
_HEBREW_TEENS = {15: "טו", 16: "טז"}  # noqa: RUF001 -- not 10 and 5, 10 and 6
_DIGITS = {"hindiNumbers": "٠١٢٣٤٥٦٧٨٩", "thaiNumbers": "๐๑๒๓๔๕๖๗๘๙", "decimalFullWidth": "０１２３４５６７８９"}  # noqa: RUF001
_HAN = "〇一二三四五六七八九"
_HAN_COUNTING = {"chineseCounting", "chineseCountingThousand", "taiwaneseCounting", "japaneseCounting"}
_HAN_DIGITS = {"ideographDigital", "taiwaneseDigital", "japaneseDigitalTenThousand"}
_LARGEST = 9999  # beyond it, only digits are written


def formatted(value: int, form: str) -> str:
    """Returns ``value`` in the format ``form``, such as ``lowerRoman``.

    Returns it in digits if the format is unknown or cannot write this number.
    """
    if not 0 < value <= _LARGEST:
        return str(value)
    if form in _DIGITS:
        return "".join(_DIGITS[form][int(digit)] for digit in str(value))
    match form:
        case "decimalZero":
            return f"{value:02}"
        case "lowerRoman" | "upperRoman":
            return _cased(_roman(value), form)
        case "lowerLetter" | "upperLetter":
            return _cased(_letters(value, _LATIN), form)
        case "lowerAlphabetic" | "upperAlphabetic":
            return _cased(alphabetic(value), form)
        case "russianLower" | "russianUpper":
            return _cased(_letters(value, _RUSSIAN), form)
        case "greekLower" | "greekUpper":
            return _cased(_letters(value, _GREEK), form)
        case "arabicAlpha":
            return _letters(value, _ARABIC)
        case "hebrew1":
            return _hebrew(value)
        case "ordinal":
            return f"{value}{_ordinal_end(value)}"
        case "decimalEnclosedCircle" if value <= 20:
            return chr(0x245F + value)
    if form in _HAN_COUNTING or form.startswith("chineseCounting"):
        return _counted_in_han(value)
    return "".join(_HAN[int(digit)] for digit in str(value)) if form in _HAN_DIGITS else str(value)


def marked(value: int, marker: str) -> str:
    """Returns ``value`` as a list prints it with this ``marker``, a key of MARKERS: 3 is ``iii`` with the marker
    ``i``.
    """
    return formatted(value, MARKERS[marker])


def in_a_row(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields the first and last number of each run of consecutive numbers in ``numbers``, which are ascending: (3, 7)
    for the run from 3 to 7.
    """
    start = 0
    for i, number in enumerate(numbers):
        if i + 1 == len(numbers) or numbers[i + 1] != number + 1:
            yield numbers[start], number
            start = i + 1


def _cased(text: str, form: str) -> str:
    return text.upper() if form.startswith("upper") or form.endswith("Upper") else text


def _roman(value: int) -> str:
    text = ""
    for size, letters in _ROMAN:
        text += letters * (value // size)
        value %= size
    return text


def _letters(value: int, alphabet: str) -> str:
    """Returns a number (from 1) as letters of ``alphabet``. After z comes aa, then bb: Word repeats the letter."""
    times, place = divmod(value - 1, len(alphabet))
    return alphabet[place] * (times + 1)


def alphabetic(value: int) -> str:
    """Returns a number (from 1) as letters: a to z, then aa, ab and so on, as in OpenDocument lists and columns of
    sheets.
    """
    text = ""
    while value:
        value, place = divmod(value - 1, len(_LATIN))
        text = _LATIN[place] + text
    return text


def _hebrew(value: int) -> str:
    text = ""
    for letter, size in _HEBREW.items():
        if value in _HEBREW_TEENS:
            return text + _HEBREW_TEENS[value]
        text += letter * (value // size)
        value %= size
    return text + " אבגדהוזחט"[value].strip()


def _ordinal_end(value: int) -> str:
    return "th" if value % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")


def _counted_in_han(value: int) -> str:
    text, zero = "", False
    for size, unit in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, value = divmod(value, size)
        if digit:
            text += (_HAN[0] if zero else "") + _HAN[digit] + unit
        zero = bool(text) and not digit
    return text.removeprefix("一") if text.startswith("一十") else text
