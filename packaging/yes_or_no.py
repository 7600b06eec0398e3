"""Makes yes-or-no questions from the statements of a text and from other questions. An answer says yes or no and
repeats the right words, so it cannot be guessed from the question alone.
"""

import random
import re
from collections.abc import Iterator, Sequence

Turn = tuple[str, str]
"""A question and its answer."""

LONGEST = 14  # greatest number of words that an answer takes from a statement
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_STATEMENT = re.compile(
    r"(?P<subject>[A-Z][^,;:()\"\[\]]{2,70}?) (?P<verb>is|are|was|were|can|could|may|must|should|will|would)"
    r"(?P<negated>(?: not| never)\b|not\b)? (?P<rest>[^;:()\"\[\]]+)\."
)
_NO_SUBJECT = re.compile(
    r"(?:it|this|that|these|those|there|here|he|she|they|we|i|you|who|what|which|but|and|so|yet|or|for|even|only|then"
    r"|perhaps|once|suddenly|now|neither|nor|no|not|in|on|at|by|with|from|of|to|as|after|before|during|until|since|under"
    r"|among|like|also|thus|however|its|his|her|their|our|my|your|such|another|other|more|most|any|just|soon)\b",
    re.IGNORECASE,
)
_LOWERED = re.compile(r"(?:The|A|An|All|Some|Many|Each|Every|Both)\b")
_NEXT_CLAUSE = re.compile(r",? (?:but|so|for a|and (?=\w+(?:s|ed)\b))\b|, (?:and|or)\b|\bnot only\b|\bno longer\b")
_SUBORDINATE = re.compile(r"\b(?:that|which|who|because|when|while|if|although|as|where|whose)\b", re.IGNORECASE)
_DETAIL = re.compile(
    r",? (?=(?:with|without|in|on|at|by|for|from|to|until|after|before|during|under|over|between|if|when|unless"
    r"|because|only|through|as|within|since)\b)"
)
_OPPOSITES = {
    word: other
    for pair in (
        *("more less", "most least", "higher lower", "highest lowest", "larger smaller", "largest smallest"),
        *("before after", "increase decrease", "increased decreased", "first last", "north south", "east west"),
        *("northern southern", "eastern western", "with without", "always never", "old new", "early late"),
        *("earlier later", "long short", "longer shorter", "high low", "large small", "big small", "good bad"),
        *("strong weak", "rich poor", "male female", "men women", "public private", "allowed forbidden"),
        *("legal illegal", "common rare", "similar different", "positive negative", "many few"),
        *("possible impossible", "able unable", "young old", "happy sad", "major minor", "up down"),
        *("better worse", "best worst", "included excluded", "required optional", "above below"),
        *("warm cold", "easy difficult", "rural urban", "summer winter", "brother sister"),
        *("king queen", "father mother", "son daughter", "beautiful ugly", "day night", "morning evening"),
    )
    for word, other in (pair.split(), pair.split()[::-1])
}
_ALTERABLE = re.compile(rf"\b(?:{'|'.join(_OPPOSITES)}|\d[\d,.]*\d|\d)\b")


def of_text(text: str, rng: random.Random) -> Iterator[Turn]:
    """Yield a yes-or-no question for each statement of ``text`` that can be turned into one. About as many questions
    have the answer no as the answer yes.
    """
    for sentence in _SENTENCE.split(" ".join(text.split())):
        if not 6 <= len(sentence.split()) <= 32 or not (found := _STATEMENT.fullmatch(sentence)):
            continue
        subject, rest = found["subject"], _NEXT_CLAUSE.split(found["rest"])[0].strip(" ,")
        if _NO_SUBJECT.match(subject) or _SUBORDINATE.search(subject) or len(subject.split()) > 7:
            continue
        if not 3 <= len(rest.split()) <= 20:
            continue
        subject = subject[0].lower() + subject[1:] if _LOWERED.match(subject) else subject
        if turn := _of_statement(found["verb"], subject, rest, bool(found["negated"]), rng):
            yield turn


def _of_statement(verb: str, subject: str, rest: str, negated: bool, rng: random.Random) -> Turn | None:
    """Returns the question whether ``rest`` is true of ``subject``, with its answer. The rest may be altered, which
    makes the answer no, or shortened. Returns None if the statement is skipped.
    """
    if negated:
        return _question(verb, subject, _first_part(rest)), f"No, {subject} {verb} not {_brief(rest)}."
    if rng.random() < 0.65 and (altered := _altered(rest, rng)):
        return _question(verb, subject, altered), f"No, {_brief(rest)}."
    first = _first_part(rest)
    detail = rest[len(first) :].lstrip(", ")
    if rng.random() < 0.5 or not detail:
        return None if not detail else (_question(verb, subject, first), f"Yes, {_brief(detail)}.")
    return _question(verb, subject, first), f"Yes, {_brief(rest)}."


def _question(verb: str, subject: str, rest: str) -> str:
    return f"{verb.capitalize()} {subject} {rest.rstrip(' ,')}?"


def _brief(words: str) -> str:
    """Returns ``words``, or only the first LONGEST of them, cut at the last comma, "and" or "or" if there is one."""
    some = words.split()
    if len(some) <= LONGEST:
        return words
    kept = " ".join(some[:LONGEST])
    ends = [match.start() for match in re.finditer(r",| and | or ", kept)]
    return kept[: ends[-1]] if ends and ends[-1] > 12 else kept.rstrip(",")


def _first_part(rest: str) -> str:
    """Returns ``rest`` without its details, such as a place, a time or a condition. At least three words remain."""
    for found in _DETAIL.finditer(rest):
        if len(rest[: found.start()].split()) >= 3:
            return rest[: found.start()]
    return rest


def _altered(rest: str, rng: random.Random) -> str:
    """Returns ``rest`` with a number changed or a word replaced by its opposite; empty if it has neither."""
    found = list(_ALTERABLE.finditer(rest))
    if not found:
        return ""
    one = rng.choice(found)
    other = _OPPOSITES.get(one.group()) or other_number(one.group(), rng)
    return rest[: one.start()] + other + rest[one.end() :]


def other_number(number: str, rng: random.Random) -> str:
    """Returns a number that differs from ``number`` in one digit and is written the same way."""
    digits = [i for i, c in enumerate(number) if c.isdigit()]
    at = rng.choice(digits[-2:]) if len(digits) > 1 else digits[0]
    digit = rng.choice([d for d in "123456789" if d != number[at]])
    return number[:at] + digit + number[at + 1 :]


_PLACE_OR_TIME = re.compile(
    r"(?:when|where|in (?:what|which) year) (was|were|did|is|are|does|do) (.+?)\s*\?*", re.IGNORECASE
)
_PERSON_OR_THING = re.compile(
    r"(?:who|what|which \w+) (was|is|were|are) ((?:the|an?|in|called|known|named) .+?)\s*\?*", re.IGNORECASE
)
_DOER = re.compile(
    r"who ((?!was|is|were|are|did|does|do|had|has|have|will|would|could|can)\w+ .+?)\s*\?*", re.IGNORECASE
)
_PREPOSITION = re.compile(r"(in|on|at|by|after|before|during|from|near|under|since|until)\b", re.IGNORECASE)


def of_turn(turn: Turn, questions: Sequence[Turn], rng: random.Random) -> list[Turn]:
    """Returns two yes-or-no questions in random order: whether the answer of ``turn`` is right, and whether a wrong
    answer is. The wrong answer is that of another one of ``questions``, or the right one with another number. Returns
    an empty list if no wrong answer is known or the question has no yes-or-no form.
    """
    question, answer = turn
    right, wrong = answer.rstrip("."), _wrong_answer(turn, questions, rng)
    if len(answer.split()) > 6 or not answer[:1].isalnum() or not wrong:
        return []
    pair = [(_asked(question, right, right), "Yes"), (_asked(question, wrong, right), "No")]
    turns = [(asked[0], f"{said}, {asked[1]}.") for asked, said in pair if asked]
    rng.shuffle(turns)
    return turns


def _asked(question: str, asked: str, right: str) -> Turn | None:
    """Returns the question whether ``asked`` is the answer to ``question``, and the words ``right`` as the reply should
    give them. Returns None if the question has no yes-or-no form.
    """
    if found := _PLACE_OR_TIME.fullmatch(question):
        asked, right = (text if _PREPOSITION.match(text) else f"in {text}" for text in (asked, right))
        return f"{found[1].capitalize()} {found[2]} {asked}?", right
    if found := _DOER.fullmatch(question):
        return f"Was it {asked} who {found[1]}?", right
    if found := _PERSON_OR_THING.fullmatch(question):
        return f"{found[1].capitalize()} {asked} {found[2]}?", right
    return None


def _wrong_answer(turn: Turn, questions: Sequence[Turn], rng: random.Random) -> str:
    """Returns a wrong answer of the same kind as the right one; empty if none is known."""
    (question, answer), kind = turn, turn[0].split()[0].lower()
    others = [a.rstrip(".") for q, a in questions if q.split()[0].lower() == kind and a != answer and q != question]
    others = [other for other in others if len(other.split()) <= 6 and other.lower() not in answer.lower()]
    if found := re.search(r"\d+", answer):
        others.append(answer[: found.start()] + other_number(found.group(), rng) + answer[found.end() :].rstrip("."))
    return rng.choice(others) if others else ""
