"""Finds the topics of a document: the headings that describe the text below them."""

import re
from collections.abc import Iterator, Sequence

from localctx.library.outline import outline
from localctx.store.documents import Span

MIN_BODY = 40  # characters; a heading with less text below it is not asked about
MAX_WORDS = 7
MAX_ABBREVIATION = 4  # letters; a longer word in capitals is no abbreviation

_NUMBER = r"(?:§\s*)?(?:\d{1,3}(?:\.\d{1,3})*|[IVXLC]{1,6}|[A-Z])[.):]?"
_PART = "chapter|section|article|clause|part|schedule|appendix|annex|kapitel|abschnitt|artikel|chapitre|capítulo"
_RUN_IN = re.compile(
    rf"^[ \t]*(?:(?:{_PART})\s+)?(?:{_NUMBER})[ \t]+(?P<title>[^\W\d_][^\n.:]{{1,40}})"
    r"[.:][ \t]+(?=[A-Z\u201c\"])",
    re.MULTILINE,
)
_LEADING = re.compile(
    rf"^(?:(?:{_PART})\s+)?"
    rf"(?:{_NUMBER})(?:\s*[-\u2013\u2014:.]\s*|\s+|$)",
    re.IGNORECASE,
)
_GENERAL_WORDS = """
about abstract acknowledgements acknowledgments appendix author authors bibliography changelog conclusion conclusions
contents copyright cover credits definitions example examples figures foreword further general glossary index
introduction license licence miscellaneous notes other overview preface references remarks schedule signature
signatures summary table tables title and the of
einleitung inhalt inhaltsverzeichnis vorwort anhang literatur zusammenfassung sonstiges fazit
sommaire avant-propos annexe bibliographie índice introducción prólogo conclusión conclusiones anexo bibliografía
indice introduzione premessa conclusioni introdução conclusão inhoud inleiding voorwoord
"""
_GENERAL = frozenset(_GENERAL_WORDS.split())


def find_topics(text: str, spans: Sequence[Span]) -> list[str]:
    """Returns the topics that the headings of ``text`` name, in order, without numbers. Headings with little text below
    them are left out, and so are headings of any kind of document, such as "Introduction".
    """
    marked = outline(text, [span for span in spans if span.start < len(text)])
    found = [(span.label, span.end - span.start - len(span.label)) for span in marked]
    names = found if len(found) > 1 else list(_run_in(text))
    topics = (_topic(label) for label, body in names if body >= MIN_BODY)
    return list(dict.fromkeys(filter(None, topics)))


def _run_in(text: str) -> Iterator[tuple[str, int]]:
    """Finds numbered titles that stand before a sentence (``1. Rent. The rent is``). Yields each title with the number
    of characters up to the next title.
    """
    found = list(_RUN_IN.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)]
    for match, end in zip(found, ends, strict=False):
        yield match["title"].strip(), end - match.end("title")


def _topic(label: str) -> str:
    title = " ".join(_LEADING.sub("", label.strip()).split()).strip(" .:-\u2013\u2014*_`")
    words = title.split()
    if title.endswith("?"):
        return title if len(words) <= 2 * MAX_WORDS else ""
    letters = sum(c.isalpha() for c in title)
    if not 0 < len(words) <= MAX_WORDS or letters < max(3, 0.7 * len(title.replace(" ", ""))):
        return ""
    if all(word.strip(",").lower() in _GENERAL for word in words):
        return ""
    return title


def in_a_sentence(title: str, text: str) -> str:
    """Returns an English title as it is written inside a sentence: in lower case, except names and terms that ``text``
    writes with a capital letter inside sentences.
    """
    return " ".join(_inside(word, text, title.isupper()) for word in title.split())


def _inside(word: str, text: str, in_capitals: bool) -> str:
    """Returns a word of a title as inside a sentence. ``in_capitals`` says that the whole title is in capitals."""
    if in_capitals:
        forms = (word, word.capitalize())
        return next((form for form in forms if _is_inside(form, text)), word.lower())
    abbreviation = word.isupper() and 1 < len(word) <= MAX_ABBREVIATION
    mixed = any(c.isupper() for c in word[1:]) and not word.isupper()
    return word if abbreviation or mixed or _is_inside(word.capitalize(), text) else word.lower()


def _is_inside(word: str, text: str) -> bool:
    return bool(re.search(rf"[a-z,] {re.escape(word)}\b", text))
