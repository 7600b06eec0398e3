"""Compares the kind of quantity that a question asks for, such as a weight, with the units in an answer."""

import re
from collections.abc import Set

_NUMBER_WORDS = r"half|one|two|three|four|five|six|seven|eight|nine|ten|hundred|thousand|million|billion"
_KINDS = {
    "weight": r"kg|g|mg|t|lbs?|oz|(?:kilo|milli)?gram(?:me)?s?|Gramm|Kilo(?:s|gramm)?|ounces?|tons?|tonnes?",
    "temperature": r"° ?[CFK]?|degrees?|Grad|degrés?|grados?",
    "memory": r"[kKMGT]i?B|(?:kilo|mega|giga|tera|gibi|mebi)?bytes?",
    "power": r"k?Wp?|k?Wh|watts?",
    "money": r"[€$£¥]|EUR|USD|GBP|CHF|euros?|dollars?|francs?|Franken|cents?|yuan|元",
    "pounds": r"pounds?",  # money or weight
    "share": r"%|per ?cent|Prozent|pour cent|por ciento",
    "time": r"seconds?|minutes?|min|hours?|h|days?|weeks?|months?|years?|Minuten?|Stunden?|Tagen?|Wochen?|Monaten?|"
    r"Jahren?|heures?|jours?|semaines?|mois|ans?|minutos?|horas?|días?|semanas?|meses|años?",
    "length": r"[kcm]?m|(?:kilo|centi|milli)?met(?:er|re)s?|feet|ft|inch(?:es)?|miles?|mètres?|metros?",
    "area": r"m²|sqm|qm|square \w+|Quadratmetern?",
    "volume": r"m?l|lit(?:er|re)s?|Litern?|litros?|gallons?|m³",
}
_OFTEN = "once|twice|times|daily|weekly|monthly|einmal|zweimal|täglich|wöchentlich|monatlich|fois"
_UNITS = "|".join(rf"(?P<{kind}>{words})" for kind, words in _KINDS.items())
_NUMBER = rf"(?:\d[\d.,]*|\b(?:{_NUMBER_WORDS})\b)"
_QUANTITY = re.compile(
    rf"{_NUMBER}[ \u00a0-]?(?:{_UNITS})(?![^\W_])|(?P<before>[€$£¥]) ?\d|\b(?P<often>{_OFTEN})\b", re.IGNORECASE
)
_ASKED = (
    (r"how heavy|weigh|wie schwer|wiegt|pèse|combien pèse|cuánto pesa", {"weight", "pounds"}),
    (
        r"how (?:hot|warm|cold)|what temperature|wie (?:heiß|warm|kalt)|quelle température|qué temperatura",
        {"temperature"},
    ),
    (
        r"how much (?:memory|ram|disk|storage)|wie ?viel (?:arbeitsspeicher|speicher|ram)|combien de mémoire|"
        r"cuánta memoria",
        {"memory"},
    ),
    (
        r"how much .*\b(?:costs?|pay|charged?)\b|was kostet|wie ?viel kostet|combien coûte|cuánto cuesta",
        {"money", "pounds", "share"},
    ),
    (r"how (?:big|large)|wie groß|quelle taille", {"area", "length", "volume", "memory", "weight", "power", "share"}),
    (r"how often|wie oft|à quelle fréquence|con qué frecuencia", {"time", "share"}),
    (
        r"how many (?!euros|dollars|pounds|francs|cents|degrees|k?watts|k?W|bytes|[kMGT]i?B|\w+bytes)|"
        r"wie ?viele (?!Euro|Franken|Grad|k?Watt|Kilowatt)",
        {"weight", "pounds", "time", "length", "area", "volume", "share"},
    ),
    (r"how long|wie lange?|combien de temps|cuánto tiempo", {"time", "length"}),
)
_QUESTIONS = [(re.compile(rf"(?<!\w)(?:{words})", re.IGNORECASE), frozenset(kinds)) for words, kinds in _ASKED]


def has_other_measure(question: str, answer: str) -> bool:
    """Returns True if ``question`` asks for a kind of quantity, such as a weight, and ``answer`` has quantities of
    other kinds only. Numbers without a known unit are of any kind, but no amount of memory.
    """
    asked, given = _asked(question), _kinds(answer)
    if asked == {"memory"} and not given:
        return bool(re.search(_NUMBER, answer, re.IGNORECASE))
    return bool(asked and given) and not asked & given


def has_measure(question: str, sentence: str) -> bool:
    """Returns True if ``sentence`` has a quantity of the kind that ``question`` asks for."""
    return bool(_asked(question) & _kinds(sentence))


def _asked(question: str) -> Set[str]:
    return next((kinds for asks, kinds in _QUESTIONS if asks.search(question)), frozenset())


def _kinds(text: str) -> Set[str]:
    """Returns the kinds of the quantities in ``text``; how often something happens is a time."""
    alike = {"before": "money", "often": "time"}
    return {alike.get(kind := found.lastgroup or "", kind) for found in _QUANTITY.finditer(text)}
