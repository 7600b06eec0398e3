"""Suggests questions that a document answers. Rules make them from the document's statements, headings and names.

Every question is about something in the document, in the document's language if there is a wording for it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

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

_SUBJECT = r"(?:The|This|Our|Its|Their|Your)\s+(?P<subject>(?:[A-Za-z][a-z]+(?:-[a-z]+)?\s+){0,2}[A-Za-z][a-z]+)"
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
    r"(?:An?\s+|The\s+)?(?P<term>[A-Z][\w-]+(?:\s+[A-Z][\w-]+){0,2})\s+is\s+(?:an?|the)\s+(?:[a-z-]+\s+){0,2}?[a-z]{3,}"
)
_HAPPENED = re.compile(
    r"(?P<subject>(?:The\s+)?[A-Z][^,.;:()\"“]{2,60}?)\s+(?P<was>was|were)\s+(?:first\s+|originally\s+|officially\s+)?"
    r"(?P<verb>founded|built|established|launched|created|born|opened|completed|introduced|published|discovered|invented|"
    r"elected|signed|adopted|abolished|formed)\s+(?:in|on|by|between)\s[^.;]*?\b(?:1\d{3}|20\d{2})\b"
)
_NAME = re.compile(r"(?<=[\w,] )[A-Z][a-z]+(?:\s+[A-Z][a-z]+)+")
_SPOKEN_OF = re.compile(r"\b[Tt]he (?P<subject>(?:[a-z]{3,} )?[a-z]{5,}) (?:is|are|was|were|has|have|can)\b")
_WORDS = """
It This That These Those There He She They We You I Here What Who One Another Each Such Note Chapter Section Figure
Both Some Many Most Several No Table Nothing Everything Something All Today Now My His Her Our Their Its Your If When
While As Not The And But Then God
"""
_NOT_TERMS = frozenset(_WORDS.split())
_VERBS = r"(?:said|says|asked|replied|answered|cried|exclaimed|whispered|laughed|smiled|continued)"
_SPEAKER = re.compile(
    rf"(?:\b{_VERBS}\s+(?P<after>(?:(?:Mr|Mrs|Miss|Dr|Lady|Lord|Sir)\.?\s+)?[A-Z][a-z]{{2,}})\b)|"
    rf"(?:\b(?P<before>(?:(?:Mr|Mrs|Miss|Dr|Lady|Lord|Sir)\.?\s+)?[A-Z][a-z]{{2,}})\s+{_VERBS}\b)"
)


def suggest_questions(text: str, spans: Sequence[Span]) -> list[str]:
    """Returns up to COUNT questions that a document with this text answers, from different parts of the text. Returns
    [] if the rules find nothing to ask about.
    """
    text = text[:MAX_CHARACTERS]
    language = language_of(text) or "en"
    topics = find_topics(text, spans)
    named = [_about(language, name) for name in _names(text)]
    if language != "en":
        headed = _spread([_about(language, topic) for topic in topics], COUNT)
        return [*headed, *named][:COUNT]
    headed = [_about(language, topic if topic.endswith("?") else in_a_sentence(topic, text)) for topic in topics]
    stated = [question for start, end in sentences(text, 0, len(text)) for question in _stated(text[start:end], text)]
    stated = list(dict.fromkeys(stated))
    people = [f"Who is {name}?" for name in _speakers(text)]
    if len(people) >= COUNT:
        return people[:COUNT]
    mixed = _spread(stated, COUNT - 1 if headed else COUNT) + people
    return _without_same_words([*mixed, *_spread(headed, COUNT), *headed, *stated, *named, *_subjects(text)], COUNT)


def _about(language: str, topic: str) -> str:
    """Returns a question about the topic of a heading. A heading that is a question already is returned unchanged."""
    if language == "en" and topic.lower().startswith("who "):
        return f"{topic[0].upper()}{topic[1:].rstrip('?')}?"
    return topic if topic.endswith("?") else _ABOUT.get(language, "{}?").format(topic)


def _stated(sentence: str, text: str) -> Iterator[str]:
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
        subject = re.sub(r"^The\b", "the", found["subject"])
        if found["subject"].split()[0] not in _NOT_TERMS - {"The"}:
            yield f"When {found['was']} {subject} {found['verb']}?"
    elif (found := _IS_A.match(sentence)) and _is_term(found["term"], text):
        yield f"What is {found['term']}?"


def _is_term(term: str, text: str) -> bool:
    return term.split()[0] not in _NOT_TERMS and text.count(term) > MIN_DEFINED and term.lower() not in text


def _plain(subject: str) -> str:
    """Returns the subject of a sentence in lower case, because contracts write defined terms with capitals."""
    return subject if subject.isupper() else subject.lower()


def _speakers(text: str) -> list[str]:
    """Returns the speakers of a story, most frequent first."""
    said = Counter(" ".join((m["after"] or m["before"]).split()) for m in _SPEAKER.finditer(text))
    for name in [name for name in said if name in _NOT_TERMS]:
        del said[name]
    return [name for name, times in said.most_common(2 * COUNT) if times >= MIN_SAID]


def _names(text: str) -> list[str]:
    """Returns the most frequent names inside sentences. Only names of several words count."""
    found = Counter(" ".join(name.split()) for name in _NAME.findall(text))
    return [name for name, times in found.most_common(COUNT) if times >= MIN_SAID]


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
