"""The questions about our own documents, and the judgement of their answers, in English, German, French and Chinese."""

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "measure" / "own_documents"

_WORDS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen twenty",
    "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn "
    "neunzehn zwanzig",
    "deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize - - - vingt",
)
_TENS = ("thirty forty fifty sixty", "dreißig vierzig fünfzig sechzig", "trente quarante cinquante soixante")
_VALUES = {word.casefold(): n for words in _WORDS for n, word in enumerate(words.split(), 2)}
_VALUES |= {word.casefold(): 10 * n for words in _TENS for n, word in enumerate(words.split(), 3)}

_PERCENT = re.compile(r"\b(?:per ?cent|prozent|pour ?cent)\b")
_THOUSANDS = r"[1-9]\d{0,2}(?:[ ,.'’]\d{3})+(?!\d)"  # noqa: RUF001 (an apostrophe, as the Swiss write)
_TOKEN = re.compile(rf"(?P<number>(?:{_THOUSANDS}|\d+)(?:[.,]\d+)?)|[\u3400-\u9fff]|[^\W\d_\u3400-\u9fff]+|%")
_GROUPED = re.compile(rf"({_THOUSANDS})(?:[.,](\d+))?")

_OPENINGS = {
    "yes": {"yes", "ja", "oui", "sí", *"是可能对会有"},
    "no": {"no", "not", "never", "nein", "nicht", "non", *"不否没無无未禁"},
}
_REFUSALS = re.compile(
    r"does(?: not|n't|n’t) (?:\w+ )?(?:say|state|mention|specify|provide|contain|give|include)"  # noqa: RUF001
    r"|(?:is|are) not (?:\w+ )?(?:said|stated|mentioned|specified|provided|given|in the (?:document|text))"
    r"|sagt (?:\w+ ){0,2}nicht|nicht (?:\w+ )?(?:angegeben|erwähnt|genannt|enthalten)"
    r"|keine angabe|steht nicht (?:im|in)"
    r"|geht (?:\w+ ){0,4}nicht hervor|ne (?:le |l['’])?(?:dit|précise|mentionne|indique)\w* pas|ne contient pas"  # noqa: RUF001
    r"|n['’](?:est|y est) pas (?:\w+ )?(?:précisé|mentionné|indiqué|dit)"  # noqa: RUF001
    r"|no clear answer|keine klare antwort|pas trouvé de réponse|没有找到"
    r"|(?:没有|未|没)(?:明确)?(?:说|提|给出|写|记载|涉及|包含|指出)"
)
LONGEST_REFUSAL = 40  # words: a longer text answers something


@dataclass(frozen=True)
class OwnQuestion:
    """A question about ``document``, asked in ``language``.

    Any alternative of ``expected`` is right, with all its phrases; none: the document does not say. ``yes_no``: the
    right polarity (yes, no or either), empty for other questions. ``verbatim``: the document has the words.
    """

    id: str
    document: str
    language: str
    question: str
    expected: Sequence[Sequence[str]]
    yes_no: str = ""
    verbatim: bool = False

    @property
    def file(self) -> Path:
        """The document."""
        return FOLDER / self.document


def load_questions(file: Path = FOLDER / "questions.toml") -> tuple[list[OwnQuestion], dict[str, str]]:
    """Return the questions, and the language of each document."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    return [OwnQuestion(**question) for question in content["questions"]], content["documents"]


def is_right(question: OwnQuestion, answer: str) -> bool:
    """Return True if an answer has the expected words or, of yes and no, the expected one."""
    opening = polarity(answer) if question.yes_no else ""
    if question.yes_no == "either":
        return opening == "yes" or has_expected(question, answer)
    return opening == question.yes_no if opening else has_expected(question, answer)


def has_expected(question: OwnQuestion, text: str) -> bool:
    """Return True if a text has all phrases of an alternative."""
    found = tokens(text)
    return any(all(_has(found, phrase) for phrase in phrases) for phrases in question.expected)


def polarity(answer: str) -> str:
    """Return ``yes`` or ``no`` if an answer begins with a word for it, else an empty text."""
    first = tokens(answer)[:1]
    return next((name for name, words in _OPENINGS.items() if words.intersection(first)), "")


def says_nothing(answer: str) -> bool:
    """Return True if a text says, in a language of the questions, that the document does not answer."""
    return len(tokens(answer)) <= LONGEST_REFUSAL and bool(_REFUSALS.search(answer.casefold()))


def tokens(text: str) -> list[str]:
    """Return the words of a text in lower case, Chinese by characters; a number is the same in every notation."""
    text = _PERCENT.sub("%", unicodedata.normalize("NFKC", text).casefold())
    return list(_join_tens([m[0] if m["number"] is None else _plain_number(m[0]) for m in _TOKEN.finditer(text)]))


def _plain_number(number: str) -> str:
    """Return a number without separators of thousands, and with no zeros around it."""
    if grouped := _GROUPED.fullmatch(number):
        whole, decimals = re.sub(r"\D", "", grouped[1]), grouped[2] or ""
    else:
        whole, _, decimals = number.replace(",", ".").partition(".")
    decimals = decimals.rstrip("0")
    return f"{int(whole)}.{decimals}" if decimals else str(int(whole))


def _join_tens(words: Sequence[str]) -> Iterator[str]:
    """Yield words, those for numbers as digits: twenty-five is one."""
    tens = 0
    for word in words:
        value = _VALUES.get(word, 0)
        if tens and not 0 < value < 10:
            yield str(tens)
            tens = 0
        if value >= 20:
            tens = value
        else:
            yield str(tens + value) if value else word
            tens = 0
    if tens:
        yield str(tens)


def _has(found: Sequence[str], phrase: str) -> bool:
    """Return True if a phrase's words follow each other; ``*`` at its end stands for the end of a word."""
    wanted, open_end = tokens(phrase), phrase.endswith("*")
    for at in range(len(found) - len(wanted) + 1):
        *first, last = found[at : at + len(wanted)]
        if first == wanted[:-1] and (last.startswith(wanted[-1]) if open_end else last == wanted[-1]):
            return True
    return False
