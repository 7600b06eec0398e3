"""Suggests questions that a document answers. Rules make them from the document's statements, headings and names.

Every question is about something in the document, in the document's language if there is a wording for it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from localctx.library.wording.identify_language import language_of
from localctx.library.wording.sentences import sentences
from localctx.store.documents import Span
from localctx.store.search_words import COMMON_WORDS
from localctx.workflows.ahead.topics import find_topics, in_a_sentence

COUNT = 3  # questions to suggest
MAX_CHARACTERS = 400_000  # of a long document, only the beginning is used
_ASKING = frozenset(("what", "when", "does", "much", "meant", "about"))  # words that unrelated questions share
MIN_SAID = 3  # a speaker, name or subject must occur at least this often
MIN_DEFINED = 2  # a term must be used at least this often, besides its definition

_ABOUT = {
    "en": "What does it say about {}?",
    "de": "Was steht darin zum Punkt „{}“?",
    "fr": "Que dit le document sur « {} » ?",
    "es": "¿Qué dice el documento sobre «{}»?",
    "it": "Che cosa dice il documento su «{}»?",
    "pt": "O que diz o documento sobre «{}»?",
    "nl": "Wat staat er over „{}”?",
    "sv": "Vad står det om ”{}”?",
    "da": "Hvad står der om »{}«?",
    "no": "Hva står det om «{}»?",
    "pl": "Co jest napisane o punkcie „{}”?",
}
"""Question about the part under a heading, by language; languages that inflect words put the heading in quotes."""

_ASKING_HEADINGS = (
    (re.compile(r"(who .+|what (?:happens|is|are|was|were|can|may|must|changes|changed|remains) .+)", re.I), "{}?"),
    (re.compile(r"((?:when|if) .+)", re.I), "What happens {}?"),
    (re.compile(r"how to (.+)", re.I), "How do I {}?"),
)
"""English headings that are nearly questions, and the questions."""

_SUBJECT = r"(?:The|This|Our|Your)\s+(?P<subject>(?:[A-Za-z][a-z]+(?:-[a-z]+)?\s+){0,2}[A-Za-z][a-z]+)"
_BE = r"(?:is|are|was|were|shall\s+be|will\s+be)"
_AMOUNT = re.compile(
    rf"{_SUBJECT}(?:\s+[^.;]{{0,60}}?)?\s+{_BE}\s+(?:set\s+at\s+|fixed\s+at\s+|up\s+to\s+)?(?:about\s+)?"
    r"(?:[£$€]\s?\d|\d[\d,.]*\s+(?:euros?|pounds?|dollars?)\b)"
)
_BEGINS = re.compile(
    rf"{_SUBJECT}\s+(?:shall\s+|will\s+)?(?P<verb>begins?|starts?|commences?|ends?|expires?)\s+(?:on|in|at)\s+[^.;]*\d"
)
_DUE = re.compile(rf"{_SUBJECT}\s+{_BE}\s+(?:due|payable|to\s+be\s+paid)\b(?!\s+to\b)")
_ALLOWED = re.compile(
    r"\bThe\s+(?P<who>[Tt]enant|[Ll]andlord|[Ee]mployee|[Ee]mployer|[Cc]ustomer|[Cc]lient|[Ll]icensee|[Uu]ser|[Mm]ember|"
    r"[Bb]uyer|[Ss]eller)\s+(?P<verb>may|shall|must)(?P<limit>\s+not|\s+only)?\s+"
    r"(?P<what>(?!be\b|not\b)[a-z](?:[^.,;:()]|(?<=\d)[.,](?=\d)){8,60})[.,;](?!\d)"
)
_MEANS = re.compile(r"[“\"](?P<term>[A-Z][\w' -]{2,40})[”\"]\s+(?:means|shall\s+mean|refers\s+to|is\s+defined\s+as)\b")
_IS_A = re.compile(
    r"(?:An?\s+|The\s+)?(?P<term>(?!The\b)[A-Z][\w-]+(?:\s+[\w-]+){0,2}?)\s+(?P<be>is|are)\s+"
    r"(?:an?|the|(?:[a-z]+\s+)?defined\s+as)\s+(?:[a-z-]+\s+){0,2}?[a-z]{3,}"
)
_HAPPENED = re.compile(
    r"(?P<subject>(?:The\s+)?[A-Z][^,.;:()\"“]{2,60}?)\s+(?P<was>was|were)\s+(?:first\s+|originally\s+|officially\s+)?"
    r"(?P<verb>founded|built|established|launched|created|born|opened|completed|introduced|published|discovered|invented|"
    r"elected|signed|adopted|abolished|formed)\s+(?:in|on|by|between)\s[^.;]*?\b(?:1\d{3}|20\d{2})\b"
)
_SOMETHING = (
    r"(?:.{2,80}?[,;] (?:and |but |so |then )?)?"
    r"(?P<subject>(?:[Tt]he [a-z][a-z-]+|[A-Z][a-z-]+)(?: [A-Za-z][a-z-]+){0,3})"
)
_BECAUSE = re.compile(
    rf"{_SOMETHING} (?P<verb>is|are|was|were|can|could|cannot|did not|does not|would not) "
    r"(?P<what>[^,.;:()]{3,60}),? because\b"
)
_MANY = r"(?:\d[\d,]*|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty)"
_DATE = r"(?:[A-Z][a-z]+ |\d{1,2} |early |late )*(?:\d{1,2}, )?(?:1\d{3}|20\d{2})\b"
_MADE = "founded|built|established|created|designed|discovered|invented|introduced|published|directed|signed|kept|led"
_NAMED = r"(?=[A-Z]|(?:the|an?|its|his|her|their|our) )"  # before a person or place
_BASES = """
has=does have=do had=did died=die became=become began=begin won=win moved=move arrived=arrive joined=join left=leave
married=marry ended=end lived=live stayed=stay worked=work studied=study settled=settle wanted=want decided=decide
promised=promise refused=refuse tried=try agreed=agree planned=plan
"""
_BASE = dict(pair.split("=") for pair in _BASES.split())
_RULES = (
    (rf"(?:is|are|was|were) (?:first |originally )?(?P<verb>{_MADE}) by {_NAMED}", "Who {verb} {subject}?"),
    (
        rf"(?P<verb>is|are|was|were) (?P<what>located|situated|based|held|kept|buried|born) (?:in|at|near) {_NAMED}",
        "Where {verb} {subject} {what}?",
    ),
    (
        rf"(?P<verb>has|have|had) (?:about |over |nearly )?{_MANY} (?P<what>(?:[a-z-]{{3,}} )?[a-z]{{3,}}s)\b",
        "How many {what} {base} {subject} have?",
    ),
    (
        rf"(?P<verb>died|became|began|won|moved|arrived|joined|married|ended|left)\b(?P<what>[^,.;()\d]{{0,40}}?) "
        rf"(?:in|on|by) {_DATE}",
        "When did {subject} {base}{what}?",
    ),
    (r"(?P<verb>lived|stayed|worked|studied|settled) (?:in|at|near|on)\b", "Where did {subject} {base}?"),
    (
        r"(?:had )?(?P<verb>wanted|decided|promised|refused|tried|agreed|planned) to\b",
        "What did {subject} {base} to do?",
    ),
)
"""Patterns of what follows the subject of a sentence, and the questions that such a sentence answers."""

_STATED = [(re.compile(f"{_SOMETHING} {pattern}"), asked) for pattern, asked in _RULES]
_CALLED = re.compile(r"\b(?:an?|the) (?P<what>(?:[a-z]+ )?[a-z]{3,}),? (?:was |is )?(?:called|named) [\"“]?[A-Z]")
_NAME = re.compile(r"(?<=[\w,] )[A-Z][a-z]+(?:\s+[A-Z][a-z]+)+")
_SPOKEN_OF = re.compile(r"\b[Tt]he (?P<subject>(?:[a-z]{3,} )?[a-z]{5,}) (?:is|are|was|were|has|have|can)\b")
_WORDS = """
It This That These Those There He She They We You I Here What Who One Another Each Such Note Chapter Section Figure
Both Some Many Most Several No Table Nothing Everything Something All Today Now My His Her Our Their Its Your If When
While As Not The And But Then God Every Any
"""
_NOT_TERMS = frozenset(_WORDS.split())
_VERBS = r"(?:said|says|asked|replied|answered|cried|exclaimed|whispered|laughed|smiled|continued)"
_SPEAKER = re.compile(
    rf"(?:\b{_VERBS}\s+(?P<after>(?:(?:Mr|Mrs|Miss|Dr|Lady|Lord|Sir)\.?\s+)?[A-Z][a-z]{{2,}})\b)|"
    rf"(?:\b(?P<before>(?:(?:Mr|Mrs|Miss|Dr|Lady|Lord|Sir)\.?\s+)?[A-Z][a-z]{{2,}})\s+{_VERBS}\b)"
)
_DANGLING = re.compile(
    r"\b(?:its?|they|them|their|he|him|his|she|her|this|that|these|those|such)\b|"
    r"\b(?:the|a|an) (?:latter|former|following|other|next|same|rest|above|ones?|others)\b|"
    r"\bthe (?:first|second|third|fourth|fifth|last|only|whole|more|most)(?: \w+)?\?",
    re.IGNORECASE,
)
_ASKS_ABOUT = "What does it say about "


@dataclass(frozen=True)
class SuggestedQuestions:
    """The event that suggests ``questions``: all that may be suggested until now, best first."""

    questions: tuple[str, ...]


@dataclass(frozen=True)
class Candidates:
    """``questions`` that may be suggested, best first. If they are to be ``tried``, only those that are found are."""

    questions: tuple[str, ...] = ()
    tried: bool = False


def suggest_questions(text: str, spans: Sequence[Span], count: int = COUNT) -> list[str]:
    """Returns up to ``count`` questions that a document with this text answers, best first, from different parts of the
    text. Returns [] if the rules find nothing to ask about.
    """
    text = text[:MAX_CHARACTERS]
    language = language_of(text) or "en"
    topics = find_topics(text, spans)
    named = [_about(language, name) for name in _names(text, count)]
    if language != "en":
        headed = [_about(language, topic) for topic in topics]
        return list(dict.fromkeys([*_spread(headed, COUNT), *_spread(headed, count), *named]))[:count]
    headed = [_about(language, topic if topic.endswith("?") else in_a_sentence(topic, text)) for topic in topics]
    usage = _Usage(text)
    stated = [question for start, end in sentences(text, 0, len(text)) for question in _stated(text[start:end], usage)]
    headed, stated = ([q for q in dict.fromkeys(made) if not _dangles(q)] for made in (headed, stated))
    people = [f"Who is {name}?" for name in _speakers(text) if _says_who(name, text)]
    mixed = _spread(stated, COUNT - 1 if headed else COUNT) + people
    best = _without_same_words([*mixed, *_spread(headed, COUNT), *headed, *stated], count)
    others = _without_same_words([*best, *named, *_subjects(text)], count + len(stated))
    return list(dict.fromkeys([*best, *_spread(stated, count), *others]))[:count]


def _dangles(question: str) -> bool:
    """Returns True if an English question has a pronoun, or a subject such as "the second", that means nothing without
    the text around it.
    """
    return bool(_DANGLING.search(question.removeprefix(_ASKS_ABOUT)))


def _about(language: str, topic: str) -> str:
    """Returns a question about the topic of a heading. A heading that is a question already is returned unchanged."""
    if topic.endswith("?"):
        return topic[0].upper() + topic[1:]
    for heading, question in _ASKING_HEADINGS if language == "en" else ():
        if found := heading.fullmatch(topic):
            asked = question.format(found[1])
            return asked[0].upper() + asked[1:]
    return _ABOUT.get(language, "{}?").format(topic)


def _stated(sentence: str, usage: "_Usage") -> Iterator[str]:
    """Yields a question that this English sentence answers, if a rule matches the sentence."""
    sentence = " ".join(sentence.split())
    if found := _AMOUNT.match(sentence):
        yield f"How much is the {_plain(found['subject'])}?"
    elif found := _BEGINS.match(sentence):
        verb = {"commence": "begin"}.get(found["verb"].rstrip("s"), found["verb"].rstrip("s"))
        yield f"When does the {_plain(found['subject'])} {verb}?"
    elif found := _DUE.match(sentence):
        yield f"When is the {_plain(found['subject'])} due?"
    elif found := _MEANS.search(sentence):
        yield f"What is meant by “{found['term']}”?"
    elif found := _ALLOWED.search(sentence):
        verb = "May" if found["verb"] == "may" or found["limit"] else "Must"
        yield f"{verb} the {found['who'].lower()} {found['what'].strip()}?"
    elif found := _HAPPENED.match(sentence):
        if found["subject"].split()[0] not in _NOT_TERMS - {"The"}:
            yield f"When {found['was']} {usage.inside(found['subject'])} {found['verb']}?"
    elif (found := _BECAUSE.match(sentence)) and _is_subject(found["subject"]):
        verb, _, negated = found["verb"].replace("cannot", "can not").partition(" ")
        asked = ["Why", verb, usage.inside(found["subject"]), negated, found["what"]]
        yield f"{' '.join(filter(None, asked))}?"
    elif (found := _IS_A.match(sentence)) and usage.is_term(found["term"]):
        yield f"What {found['be']} {usage.inside(found['term'])}?"
    else:
        yield from _by_pattern(sentence, usage)


def _by_pattern(sentence: str, usage: "_Usage") -> Iterator[str]:
    for pattern, asked in _STATED:
        if (found := pattern.match(sentence)) and _is_subject(found["subject"]):
            told = found.groupdict() | {"subject": usage.inside(found["subject"]), "base": _BASE.get(found["verb"])}
            yield asked.format(**told)
            return
    if found := _CALLED.search(sentence):
        yield f"What is the {found['what']} called?"


class _Usage:
    """How ``text`` writes words: how often, and whether with a capital letter inside sentences."""

    def __init__(self, text: str) -> None:
        self._lowered = text.lower()
        self._words = set(re.findall(r"\w+", text))
        self._names = set(re.findall(r"(?<=[a-z,] )[A-Z]\w*", text))
        self._counts = dict[str, int]()  # of terms

    def is_term(self, term: str) -> bool:
        """Returns True for a term of several words or a name, if the text uses it several times."""
        if term not in self._counts:
            self._counts[term] = self._lowered.count(term.lower())
        is_name = " " in term or term.lower() not in self._words
        return self._counts[term] > MIN_DEFINED and is_name and _is_subject(term)

    def inside(self, subject: str) -> str:
        """Returns the subject of a sentence as it stands inside a question: a name keeps its capital letter."""
        first = re.findall(r"\w+", subject)[0]
        is_name = first in self._names or first.lower() not in self._words
        return subject if is_name and first != "The" else subject[0].lower() + subject[1:]


def _is_subject(words: str) -> bool:
    """Returns True if ``words`` are a name or a noun with "the", and not the beginning of a clause."""
    named = words.removeprefix("The ").removeprefix("the ").split()
    return not any(word in _NOT_TERMS or word.lower() in COMMON_WORDS - {"of"} for word in named)


def _plain(subject: str) -> str:
    """Returns the subject of a sentence in lower case, because contracts write defined terms with capitals."""
    return subject if subject.isupper() else subject.lower()


def _speakers(text: str) -> list[str]:
    """Returns the speakers of a story, most frequent first."""
    said = Counter(" ".join((m["after"] or m["before"]).split()) for m in _SPEAKER.finditer(text))
    for name in [name for name in said if name in _NOT_TERMS]:
        del said[name]
    return [name for name, times in said.most_common(2 * COUNT) if times >= MIN_SAID]


def _says_who(name: str, text: str) -> bool:
    """Returns True if a sentence says who ``name`` is: "Ada, the clockmaker", "the clockmaker, Ada," or "Ada was a
    clockmaker".
    """
    called, what = name.replace(" ", r"\s+"), r"(?:an?|the|his|her|their|my)\s+(?:[a-z-]+\s+){0,3}[a-z-]{3,}"
    after = rf"\b{called},\s+{what}\b\s*(?:[,.;]|\b(?:of|who|whose|from)\b)"
    return bool(re.search(rf"{after}|\b{what},\s+{called}[,.;]|\b{called}\s+(?:is|was)\s+{what}", text))


def _names(text: str, count: int) -> list[str]:
    """Returns up to ``count`` most frequent names inside sentences. Only names of several words count."""
    found = Counter(" ".join(name.split()) for name in _NAME.findall(text))
    return [name for name, times in found.most_common(count) if times >= MIN_SAID]


def _subjects(text: str) -> list[str]:
    """Returns questions about the most frequent subjects of English sentences."""
    found = Counter(m["subject"] for m in _SPOKEN_OF.finditer(text) if m["subject"] not in COMMON_WORDS)
    often = [subject for subject, times in found.most_common(2 * COUNT) if times >= MIN_SAID]
    return [_about("en", f"the {subject}") for subject in often]


def _spread(questions: Sequence[str], count: int) -> list[str]:
    """Returns ``count`` of the questions, spread evenly from beginning to end."""
    if len(questions) <= count:
        return list(questions)
    return [questions[i * len(questions) // count] for i in range(count)]


def _without_same_words(questions: Iterable[str], count: int) -> list[str]:
    """Returns the first ``count`` questions of which no two have a word in common, except words of up to three letters
    and question words.
    """
    chosen, used = list[str](), set[str]()
    for question in questions:
        words = {word for word in re.findall(r"\w{4,}", question.lower()) if word not in _ASKING}
        if len(chosen) < count and words and not words & used:
            chosen.append(question)
            used |= words
    return chosen
