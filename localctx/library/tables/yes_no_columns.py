"""Finds the conditions that a question sets by the name of a column: of ``Paid`` with the values yes and no, or of
``Paid on`` with a day in some rows. "Not paid" and "unpaid" deny the condition.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localctx.library.tables.harmless_words import HARMLESS, JOINING, NEGATIONS, NO_VALUES, YES_VALUES, YET
from localctx.library.tables.table import DataTable
from localctx.library.tables.table_question import QuestionWord, TableQuestion, column_words, is_one_of, quoted
from localctx.store.search_words import SIGNS

_AROUND_NAMES = frozenset(
    re.findall(r"\w+", "is has was been are have already yes no ja nein oui non on at date ist am")
)
_PARTICIPLE = re.compile(
    r"\w{3,}ed|paid|sent|sold|built|bought|done|lost|won|shipped|(?:ge|be|ver|er)\w+t|(?:ge|be|ver|er)\w+en|\w+iert"
)
_DENIES = ("un", "in", "im", "non", "nicht", "nie", "не", "ikke", "niet", "o")
_SIGNS_DENYING = r"(?:还?没有?|尚?未|不)"
_MEANINGS = YES_VALUES | NO_VALUES | {"1.0", "0.0"}
_LINKS = frozenset(("is", "are", "equals", "says", "ist", "sind", "est", "es", "è"))


@dataclass(frozen=True)
class NamedCondition:
    """A condition in SQL that a question sets by the name of ``column``. ``spans`` are the places in the question that
    say so: the name and the words that deny it, or say yes or no.
    """

    column: str
    condition: str
    spans: Sequence[tuple[int, int]]


def is_yes_no(table: DataTable, name: str) -> bool:
    """Returns True if all values of the column ``name`` mean yes or no, or are 1 or 0."""
    filled = [value for value in table.values[name] if value is not None]
    return bool(filled) and all(_plain(value) in _MEANINGS for value in filled)


def named_conditions(asked: TableQuestion) -> Iterator[NamedCondition]:
    """Yields the conditions that the question sets by the names of columns.

    A column that the question both affirms and denies, or whose empty cells leave the meaning open, sets none.
    """
    for name in asked.table.names:
        if not (is_yes_no(asked.table, name) or _may_be_dated(asked, name)):
            continue
        signs, spans = set[bool](), list[tuple[int, int]]()
        for sign, found in _mentions(asked, name):
            signs.add(sign)
            spans += found
        condition = _condition(asked.table, name, True in signs) if len(signs) == 1 else ""
        if condition:
            yield NamedCondition(name, condition, spans)


def _may_be_dated(asked: TableQuestion, name: str) -> bool:
    """Returns True for a column of days that says by its empty cells what was not done, unless the question names a
    day.
    """
    if asked.table.columns[name].kind != "day" or None not in asked.table.values[name]:
        return False
    parts = _parts(name)
    return len(parts) == 1 and bool(_PARTICIPLE.fullmatch(parts[0])) and not re.search(r"\d{4}", asked.question)


def _condition(table: DataTable, name: str, affirmed: bool) -> str:
    """Returns the condition that a column says yes, or no; "" if its values leave that open."""
    if table.columns[name].kind == "day":
        return f"{quoted(name)} IS {'NOT ' * affirmed}NULL"
    values = dict.fromkeys(value for value in table.values[name] if value is not None)
    yes = [value for value in values if _plain(value) in YES_VALUES | {"1.0"}]
    no = [value for value in values if value not in yes]
    if None in table.values[name] and no and not (affirmed and yes):
        return ""
    if None in table.values[name] and not affirmed:
        return f"{quoted(name)} IS NULL"
    wanted, others = (yes, no) if affirmed else (no, yes)
    return is_one_of(name, wanted) if wanted else f"NOT {is_one_of(name, others)}"


def _plain(value: float | str) -> str:
    return str(value).strip(" .!").casefold()


def _parts(name: str) -> list[str]:
    """Returns the words of a column's name without those such as "is" and "on"."""
    parts = [re.sub("^(?:是否|已经|已)+", "", part) for part in column_words(name)]
    return [part for part in parts if part not in _AROUND_NAMES and part]


def _mentions(asked: TableQuestion, name: str) -> Iterator[tuple[bool, list[tuple[int, int]]]]:
    """Yields for each mention of a column whether it is affirmed, and the places of its words. All words of the name
    must be in the question.
    """
    parts = _parts(name)
    if len(parts) == 1 and re.search(f"[{SIGNS}]", parts[0]):
        for found in re.finditer(f"({_SIGNS_DENYING})?[已经]*{re.escape(parts[0])}", asked.question):
            yield not found[1], [found.span()]
        return
    hits = [[(i, sign) for i, word in enumerate(asked.words) if (sign := _sign(word.text, part))] for part in parts]
    if not parts or not all(hits) or _is_grouped_by(asked, hits[0][0][0]):
        return
    others = [asked.words[i].span for part in hits[1:] for i, _ in part]
    for i, sign in hits[0]:
        before, after = _words_before(asked.words, i), _told_after(asked, max(i, *(h[-1][0] for h in hits)))
        denies = any(word.text in NEGATIONS for word in before)
        denied = (sign < 0) ^ denies ^ bool(after and after[-1].text not in YES_VALUES)
        yield not denied, [asked.words[i].span, *others, *(word.span for word in [*before, *after])]


def _sign(word: str, part: str) -> int:
    """Returns 1 if a word is ``part``, perhaps with another ending, -1 if it is its opposite, such as "unpaid", else
    0.
    """
    if _is_inflected(word, part):
        return 1
    for prefix in _DENIES:
        if word.startswith(prefix) and _is_inflected(word.removeprefix(prefix), part):
            return -1
        if part.startswith(prefix) and _is_inflected(word, part.removeprefix(prefix)):
            return -1
    return 0


def _is_inflected(word: str, part: str) -> bool:
    """Returns True if a word differs from ``part`` at most in the last letters. "Orders" is not a form of "ordered"."""
    if word == part or len(part) < 3:
        return word == part
    if part.isascii() and (part.endswith("ed") or len(part) <= 4):
        return word == f"{part}s"
    kept = max(4, len(part) - 2)
    return word[:kept] == part[:kept] and abs(len(word) - len(part)) <= 2


def _words_before(words: Sequence[QuestionWord], at: int) -> list[QuestionWord]:
    """Returns the words that belong to the word ``at``, as "not yet" and "already" do."""
    found = list[QuestionWord]()
    for word in reversed(words[:at]):
        if word.text in NEGATIONS or word.text in YET:
            found.append(word)
        elif word.text in JOINING or word.text not in HARMLESS:
            break
    return found


def _told_after(asked: TableQuestion, at: int) -> list[QuestionWord]:
    """Returns the "no" of "paid = no", or the "nicht" at the end of a question; [] if there is none."""
    rest = list(asked.words[at + 1 :])
    while rest and rest[0].text in _LINKS:
        rest.pop(0)
    if not rest or rest[0].text not in YES_VALUES | NO_VALUES | NEGATIONS:
        return []
    between = asked.question[asked.words[at].span[1] : rest[0].span[0]]
    return rest[:1] if len(rest) == 1 or re.search("[=:]", between) else []


def _is_grouped_by(asked: TableQuestion, at: int) -> bool:
    """Returns True if the word ``at`` follows a word such as "by" or "per"."""
    return at > 0 and asked.words[at - 1].text in {"by", "per", "nach", "pro", "par", "por", "je"}
