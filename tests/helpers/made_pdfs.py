"""PDFs drawn by hand: text at places, in directions, on turned pages, with fields and comments over it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import cos, radians, sin

from made_files import assembled, escaped

WIDTH, HEIGHT = 600, 800


@dataclass(frozen=True)
class Drawn:
    """A page: what is drawn on it, the objects over it, and how much it is turned, in degrees."""

    content: str
    over: Sequence[str] = field(default=())
    turn: int = 0


def at(x: float, y: float, text: str, size: float = 12, angle: float = 0) -> str:
    """Text from a place on, ``x`` from the left and ``y`` from the bottom, running at an angle in degrees."""
    a, b = cos(radians(angle)), sin(radians(angle))
    return f"BT /F1 {size} Tf {a:.5f} {b:.5f} {-b:.5f} {a:.5f} {x:.2f} {y:.2f} Tm ({escaped(text)}) Tj ET"


def lines(x: float, y: float, texts: Iterable[str], pitch: float = 14, size: float = 12) -> list[str]:
    """Lines below each other."""
    return [at(x, y - i * pitch, text, size) for i, text in enumerate(texts)]


def rule(x: float, y: float, width: float, height: float) -> str:
    """A filled bar."""
    return f"{x} {y} {width} {height} re f"


def field_object(kind: str, box: str, more: str = "") -> str:
    """A form field that is also its own place on the page. ``more`` has its value."""
    return f"<</Type/Annot/Subtype/Widget/FT/{kind}/F 4/Rect[{box}]/DA(/F1 11 Tf 0 g)/T({box}){more}>>"


def note_object(kind: str, box: str, text: str, more: str = "") -> str:
    """An annotation with a text."""
    return f"<</Type/Annot/Subtype/{kind}/F 4/Rect[{box}]/Contents({escaped(text)})/DA(/F1 11 Tf 0 g){more}>>"


def drawn_pdf(
    pages: Sequence[Drawn | str | Sequence[str]], labels: str = "", more: Sequence[str] = (), font: str = ""
) -> bytes:
    """A PDF of pages, each a Drawn or what is drawn on it. ``more``: objects from number 4 on, for fields and notes."""
    made = [p if isinstance(p, Drawn) else Drawn(p if isinstance(p, str) else "\n".join(p)) for p in pages]
    bodies, kids, fields = ["", "", font or _FONT, *more], list[int](), list[int]()
    for page in made:
        first = len(bodies) + 1
        over = range(first + 2, first + 2 + len(page.over))
        fields += [n for n, body in zip(over, page.over, strict=True) if "/Widget" in body]
        annotations = f"/Annots[{' '.join(f'{n} 0 R' for n in over)}]" if page.over else ""
        kids.append(first)
        bodies += [
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 {WIDTH} {HEIGHT}]/Rotate {page.turn}/Contents {first + 1} 0 R"
            f"/Resources<</Font<</F1 3 0 R>>>>{annotations}>>",
            f"<</Length {len(page.content.encode('latin-1'))}>>stream\n{page.content}\nendstream",
            *page.over,
        ]
    form = f"/AcroForm<</Fields[{' '.join(f'{n} 0 R' for n in fields)}]/DR<</Font<</F1 3 0 R>>>>>>" if fields else ""
    bodies[0] = f"<</Type/Catalog/Pages 2 0 R{labels}{form}>>"
    bodies[1] = f"<</Type/Pages/Kids[{' '.join(f'{n} 0 R' for n in kids)}]/Count {len(kids)}>>"
    return assembled(bodies)


_FONT = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"

HEBREW_FONT = (
    f"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/FirstChar 32/LastChar 122/Widths[{'500 ' * 91}]"
    f"/Encoding<</Differences[97{''.join(f'/afii{57664 + i}' for i in range(26))}]>>>>"
)
"""A font in which a to z are the first letters of the Hebrew block, and all letters are half as wide as high."""


def in_hebrew(text: str) -> str:
    """The Hebrew letters that HEBREW_FONT draws."""
    return "".join(chr(0x05D0 + ord(c) - ord("a")) if "a" <= c <= "z" else c for c in text)
