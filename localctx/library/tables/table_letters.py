"""Finds values of one letter in a question, as in "size M" or "class B or C". Letters are also words ("a", "I") and
units, so a letter names a value only beside its column's name, in a list with such a letter, or as a capital.
"""

import re

from localctx.library.tables.harmless_words import HARMLESS, JOINING
from localctx.library.tables.table import DataTable
from localctx.library.tables.table_question import QuestionWord, TableQuestion, means_column
from localctx.library.tables.yes_no_columns import is_yes_no


def letters_of(table: DataTable, name: str) -> list[str]:
    """Returns the values of the text column ``name`` that have one letter or digit, such as ``M`` and ``A+``."""
    if table.columns[name].kind != "text":
        return []
    texts = dict.fromkeys(value for value in table.values[name] if isinstance(value, str))
    return [text for text in texts if len("".join(re.findall(r"[^\W_]+", text))) == 1]


def places_of_letters(asked: TableQuestion, name: str) -> dict[str, tuple[int, int]]:
    """Returns, for each value of one letter of the column ``name`` that the question names, its characters there."""
    found, accepted = dict[str, tuple[int, int]](), set[int]()
    letters = [] if is_yes_no(asked.table, name) or asked.question.isupper() else letters_of(asked.table, name)
    for at in range(len(asked.words) if letters else 0):
        linked = at - 1 in accepted or (at > 1 and at - 2 in accepted and asked.words[at - 1].text in JOINING)
        for value in letters:
            if _is_written(asked, at, value) and (linked or _is_beside(asked, at, name) or _is_alone(asked, at, value)):
                found[value] = asked.words[at].span
                accepted.add(at)
    return found


def is_harmless_letter(asked: TableQuestion, at: int) -> bool:
    """Returns True if the word ``at`` of the question, of one letter, is an article, a unit or the like."""
    word, start = asked.words[at], asked.words[at].span[0]
    written = _written(asked, word)
    if asked.question[:start].endswith(("'", "’", "°")):  # noqa: RUF001
        return True
    if written.isupper() and at > 0 and written != "I":
        return False
    columns = {name: letters_of(asked.table, name) for name in asked.table.names}
    values = [re.sub(r"[\W_]", "", value) for letters in columns.values() for value in letters]
    beside = [
        name for name, letters in columns.items() if letters and at and means_column(asked.words[at - 1].text, name)
    ]
    if beside or written in values:
        return False
    return word.text in HARMLESS or word.text not in (value.casefold() for value in values)


def _written(asked: TableQuestion, word: QuestionWord) -> str:
    return asked.question[slice(*word.span)]


def _is_written(asked: TableQuestion, at: int, value: str) -> bool:
    """Returns True if the word ``at`` is ``value``. An article such as "a" must be written like the value."""
    word = asked.words[at]
    if len(word.text) > 1 or (word.text in HARMLESS and _written(asked, word) not in value):
        return False
    whole = re.compile(rf"(?<!\w){re.escape(value)}(?!\w|[+#*-](?!\w))", re.IGNORECASE)
    return any(match.start() <= word.span[0] < match.end() for match in whole.finditer(asked.question))


def _is_beside(asked: TableQuestion, at: int, name: str) -> bool:
    """Returns True if the word before names the column ``name``, or the word after if that before names no column of
    letters.
    """
    before = asked.words[at - 1].text if at else ""
    if before and any(means_column(before, other) for other in asked.table.names if letters_of(asked.table, other)):
        return means_column(before, name)
    return at + 1 < len(asked.words) and means_column(asked.words[at + 1].text, name)


def _is_alone(asked: TableQuestion, at: int, value: str) -> bool:
    """Returns True if the word ``at`` is a capital that is a value of one column only, and beside no other."""
    written = _written(asked, asked.words[at])
    if not written.isupper() or written not in value or written == "I" or at == 0:
        return False
    columns = {name: letters for name in asked.table.names if (letters := letters_of(asked.table, name))}
    others = [name for name, letters in columns.items() if value not in letters]
    return len(others) == len(columns) - 1 and not any(_is_beside(asked, at, name) for name in others)
