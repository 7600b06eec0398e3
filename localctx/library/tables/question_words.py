"""Recognizes, by its words in several languages, whether a question asks for a computation over a table, and for which
one.
"""

import re
from dataclasses import dataclass

from localctx.store.search_words import SIGNS

_WORDS = {
    "over or equal": (
        r"at least|or more|no less than|mindestens|au moins|al menos|almeno|pelo menos|minstens|co najmniej|"
        r"не менее|至少|以上|이상"
    ),
    "under or equal": (
        r"at most|or less|no more than|up to|höchstens|maximal|au plus|como máximo|al massimo|no máximo|"
        r"hoogstens|co najwyżej|не более|högst|至多|以下|이하"
    ),
    "over": (
        r"over(?! the (?:last|past|next|first))|above|exceed\w*|after|since|more than|"
        r"(?!fewer|lower|short|small|young|cheap|earli|light|slow|narrow|near|thinn)\w+er than|"
        r"mehr als|über|(?!klein|kürz|niedrig|günstig|jüng)\w+er als|nach dem|(?<!le )plus de|supérieure?s? à|"
        r"más de|superior(?:es)? a|più di|oltre|mais de|meer dan|więcej niż|powyżej|больше|более|свыше|mer än|"
        r"över|超过|大于|超過|초과"
    ),
    "under": (
        r"less than|under|below|before|(?:few|low|short|small|young|cheap|earli|light|slow|narrow|near|thinn)er than|"
        r"weniger als|unter|vor dem|"
        r"(?:klein|kürz|niedrig|günstig|jüng)er als|(?<!le )moins de|inférieure?s? à|menos de|"
        r"inferior(?:es)? a|meno di|minder dan|mniej niż|poniżej|меньше|менее|mindre än|低于|小于|少于|"
        r"未満|미만"
    ),
    "between": r"between|zwischen|entre|tra|fra|tussen|między|между|mellan|之间|間|사이",
    "count": (
        r"how many|number of|count|wie ?viele?|anzahl|combien|nombre de|cuánt[oa]s|número de|quant[ie]|"
        r"quantos|hoeveel|aantal|ile|ilu|liczba|сколько|количество|hur många|antal|kaç|多少|几|数量|いくつ|"
        r"何人|何件|件数|몇|개수"
    ),
    "sum": (
        r"total(?!ly)|totals|sum|altogether|in all|combined|overall|insgesamt|\w*summe|gesamt\w*|zusammen|somme|"
        r"en tout|suma|somma|totale|in tutto|totaal|samen|razem|łącznie|łączn\w+|всего|сумма|итого|общ\w+|"
        r"totalt|summan|toplam|总\w*|合计|一共|總\w*|合計|総\w*|총\w*|합계"
    ),
    "mean": (
        r"average|mean|on average|durchschnitt\w*|im schnitt|mittelwert|moyen(?:ne)?s?|promedio|media|"
        r"médi[ao]|gemiddeld\w*|średni\w*|средн\w+|genomsnitt\w*|medel\w*|ortalama|平均\w*|평균\w*"
    ),
    "vague": (
        r"top|best|worst|beste[nrsm]?|schlechtest\w*|meilleure?s?|pires?|mejor(?:es)?|peor(?:es)?|miglior[ei]?|"
        r"peggior[ei]?|melhor(?:es)?|pior(?:es)?|slechtste|bästa?|sämsta?|najleps\w+|najgors\w+|лучш\w+|худш\w+|"
        r"en iyi|en kötü|最好|最佳|最差|最良|最悪|최고의?|최악의?"
    ),
    "max": (
        r"highest|most|max(?:imum|imal)?|largest|biggest|greatest|longest|latest|dearest|top|best|höchst\w*|"
        r"größt\w*|meisten?|teuerst\w*|längst\w*|plus (?:élevé|grand|gros|cher|long|haut)\w*|le plus|mayor|"
        r"más (?:alt|grand|car|larg)\w*|máxim\w*|maggior\w*|più (?:alt|grand|car|lung)\w*|massim\w*|maior\w*|"
        r"mais (?:alt|car)\w*|hoogste|meeste|grootste|duurste|najwi\w+|najwy\w+|najdro\w+|наибол\w+|максим\w+|"
        r"сам\w+ (?:высок|больш|дорог)\w+|högst\w*|störst\w*|flest\w*|dyrast\w*|en (?:yüksek|büyük|çok)|最高|"
        r"最大|最多|最も(?:高|多|大)\w*|가장 (?:높|많|큰|비싼)\w*|최고|최대"
    ),
    "min": (
        r"lowest|least|min(?:imum|imal)?|smallest|cheapest|fewest|shortest|niedrigst\w*|kleinst\w*|"
        r"günstigst\w*|billigst\w*|wenigsten|kürzest\w*|moins (?:élevé|grand|cher|long)\w*|"
        r"plus (?:petit|bas|faible|court)\w*|menor|mínim\w*|más (?:baj|pequeñ|barat)\w*|minor\w*|"
        r"più (?:bass|piccol|economic)\w*|minim\w*|mais (?:baix|barat)\w*|laagste|minste|kleinste|goedkoopste|"
        r"najni\w+|najmn\w+|najta\w+|наимен\w+|миним\w+|сам\w+ (?:низк|маленьк|дешев)\w+|lägst\w*|minst\w*|"
        r"billigast\w*|en (?:düşük|küçük|az|ucuz)|最低|最小|最少|最も(?:低|少|小|安)\w*|"
        r"가장 (?:낮|적|작|싼)\w*|최저|최소"
    ),
    "most": (
        r"most|fewest|least|meisten?|wenigsten|le plus de|le moins de|más|menos|più|meno|mais|meeste|minste|"
        r"najwięcej|najmniej|больше всего|меньше всего|flest|minst|最多|最少|가장 (?:많|적)\w*"
    ),
    "group": (
        r"per|by|each|every|for each|grouped|pro|jede[rsmn]?|nach|par|pour chaque|chaque|por|cada|per ogni|"
        r"ogni|elk[e]?|каждо\w+|по каждому|för varje|varje|每\w?|各\w?|按|ごと|별로?|각"
    ),
}
_COMPARE = {"over or equal", "under or equal", "over", "under"}
_ENDS = ("vague", "max", "min")
_COUNTED = 3  # words
_SPACELESS = re.compile(f"[{SIGNS}]")
_MORE = re.compile(
    r"(?<=how many )(?:more|fewer|less)\b(?! than)|(?<=how much )(?:more|less)\b(?! than)|"
    r"\b(?:plus|moins|más|menos|più|meno|mais)\b(?! de \d)(?=.*\b(?:que|qu|che)\b)",
    re.IGNORECASE,
)
_SAY_LITTLE = {"group", "between", "most"}


def _pattern(words: str) -> re.Pattern[str]:
    """Returns a pattern that matches these words as whole words; in scripts without spaces, anywhere."""
    parts = _alternatives(words)
    spaced = "|".join(part for part in parts if not _SPACELESS.search(part))
    others = [part for part in parts if _SPACELESS.search(part)]
    return re.compile("|".join([rf"\b(?:{spaced})\b", *others]), re.IGNORECASE)


def _alternatives(words: str) -> list[str]:
    """Divide ``words`` at the bars that are not inside parentheses."""
    found, depth = [""], 0
    for c in words:
        depth += (c == "(") - (c == ")")
        if c == "|" and not depth:
            found.append("")
        else:
            found[-1] += c
    return found


_PATTERNS = {kind: _pattern(words) for kind, words in _WORDS.items()}


@dataclass(frozen=True)
class Computation:
    """The computation that a question asks for.

    ``kinds`` name the computations, such as ``sum`` or ``over`` (more than). ``words`` are the words of the question
    that show the kinds. ``counted`` are the words after "how many" or "most", such as ``units sold``, or "".
    """

    kinds: frozenset[str]
    words: str
    counted: str

    @property
    def computes(self) -> bool:
        """True if the question counts, adds, averages, compares, or asks for the highest or lowest."""
        return bool(self.kinds - _SAY_LITTLE)


def without_operations(question: str) -> str:
    """Returns ``question`` with spaces in place of the words that say what to compute, at the same positions."""
    for pattern in _PATTERNS.values():
        question = pattern.sub(lambda match: " " * len(match.group()), question)
    return question


def comparisons(question: str) -> list[tuple[str, tuple[int, int]]]:
    """Returns the kinds and places of the words in ``question`` that compare, such as "more than" and "under"."""
    kinds = (kind for kind in _PATTERNS if kind in _COMPARE)
    return [(kind, match.span()) for kind in kinds for match in _PATTERNS[kind].finditer(question)]


def comparatives(question: str) -> list[str]:
    """Returns the words that ask for the difference of two counts, as in "how many more"."""
    return [match.group() for match in _MORE.finditer(question)]


def vague_words(question: str) -> list[str]:
    """Returns the words such as "best", which do not say by what rows are compared."""
    return [match.group() for match in _PATTERNS["vague"].finditer(question)]


def extremes(question: str) -> list[str]:
    """Returns the words that ask for the highest or lowest value."""
    return [match.group() for kind in _ENDS for match in _PATTERNS[kind].finditer(question)]


def next_words_after_extremes(question: str) -> list[str]:
    """Returns, in lower case, the words of which "the highest", "the top 5" and the like are said."""
    found = (match for kind in _ENDS for match in _PATTERNS[kind].finditer(question))
    said = (re.match(r"[\s\d]*(\w+)", question[match.end() :]) for match in found)
    return [word[1].casefold() for word in said if word]


def wanted(question: str) -> Computation:
    """Returns the computation that ``question`` asks for.

    Comparisons are recognized first, so that "at least 5" does not ask for the least.
    """
    found, rest = dict[str, list[str]](), question
    for kind, pattern in _PATTERNS.items():
        found[kind] = [match.group() for match in pattern.finditer(rest)]
        if kind in _COMPARE:
            rest = pattern.sub(" ", rest)
    kinds = frozenset(kind for kind, matches in found.items() if matches)
    count = _PATTERNS["count"].search(question) or _PATTERNS["most"].search(rest)
    after = count.string[count.end() :] if count else ""
    counted = " ".join(_PATTERNS["group"].split(after)[0].split()[:_COUNTED])
    return Computation(kinds, " ".join(word for matches in found.values() for word in matches), counted)
