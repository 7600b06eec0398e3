"""Compares the dimension that a question asks for, such as the height, with that of a length in a sentence.

Memory and disk are told apart in the same way.
"""

import re
from collections.abc import Iterator

_DIMENSIONS = {
    "height": r"high|height|tall|hoch|hohe[nrs]?|Höhe|haut(?:e|eurs?)?|alt[oa]|altura|高度?",
    "length": r"long|length|lang|lange[nrs]?|Länge|longue?|longueurs?|larg[oa]|longitud|长度?",
    "width": r"wide|width|broad|breit|breite[nrs]?|Breite|(?<=de )large|largeurs?|anch[oa]|anchura|宽度?",
    "depth": r"deep|depth|tief|tiefe[nrs]?|Tiefe|profonde?|profondeurs?|profund[oa]|profundidad|深度?",
    "thickness": r"thick|thickness|dick|dicke[nrs]?|Dicke|épaisse?|épais|épaisseurs?|grues[oa]|grosor|espesor|厚度?",
    "memory": r"memory|RAM|Arbeitsspeicher|mémoire|memoria",
    "disk": r"disk(?: space)?|storage|Festplatten?|Speicherplatz|disque|disco",
}
_LETTER = r"[^\W\d_\u3400-\u9fff]"
_WORD = "|".join(rf"(?P<{name}>(?<!{_LETTER})(?:{words})(?!{_LETTER}))" for name, words in _DIMENSIONS.items())
_UNITS = (
    r"(?:kilo|centi|milli)?(?:met(?:er|re)s?|metern?|mètres?|metros?)|kilómetros?|centímetros?|milímetros?|"
    r"[kcm]?m|feet|foot|ft|inch(?:es)?|yards?|miles?|[千厘毫公]?米|公里|"
    r"[kMGT]i?B|(?:mega|giga|tera)bytes?"
)
_LENGTH = re.compile(rf"(?P<number>\d[\d.,  ]*?)\s?-?(?:{_UNITS})(?!{_LETTER})", re.IGNORECASE)
_DIMENSION = re.compile(_WORD, re.IGNORECASE)
_BEHIND = re.compile(rf"\s?(?:in |de |of )?(?:{_WORD})", re.IGNORECASE)  # 3 m long, 3 m in height, 4 GB of memory
_ABOUT = r"(?:about|approximately|around|nearly|only|exactly|some|over|circa|etwa|rund|environ|unos|unas|约)"
_BEFORE = re.compile(rf"(?:{_WORD})(?:\s?(?:of|von|de|is|was|ist|est|es|为|是|:))*\s?(?:{_ABOUT}\s?)?$", re.IGNORECASE)


def has_other_dimension(question: str, answer: str, cited: str) -> bool:
    """Returns True if ``question`` asks for one dimension, such as a height, and the length that ``answer`` gives is
    named as another dimension in the sentence ``cited``.
    """
    asked = _dimensions(question)
    given = {_digits(found["number"]) for found in _lengths(answer)}
    named = [_dimension_of(cited, *found.span()) for found in _lengths(cited) if _digits(found["number"]) in given]
    return len(asked) == 1 and bool(named) and all(name and name not in asked for name in named)


def has_dimension(question: str, sentence: str) -> bool:
    """Returns True if ``sentence`` has a length with the dimension that ``question`` asks for."""
    asked = _dimensions(question)
    return any(_dimension_of(sentence, *found.span()) in asked for found in _lengths(sentence))


def _dimensions(question: str) -> set[str]:
    return {found.lastgroup or "" for found in _DIMENSION.finditer(question)}


def _lengths(text: str) -> Iterator[re.Match[str]]:
    return _LENGTH.finditer(text)


def _dimension_of(sentence: str, start: int, end: int) -> str:
    """Returns the dimension that is named beside the length at ``start..end``; an empty string if there is none."""
    found = _BEHIND.match(sentence, end) or _BEFORE.search(sentence, 0, start)
    return (found.lastgroup or "") if found else ""


def _digits(number: str) -> str:
    return re.sub(r"\D", "", number)
