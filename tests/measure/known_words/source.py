"""The source text of each script, and the words and places that a file made of it has."""

import re
import tomllib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")


@dataclass(frozen=True)
class Section:
    """A part of a report: its heading, its paragraphs, and the lists or the table that follow them."""

    heading: str
    paragraphs: list[str]
    bullets: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def texts(self) -> list[str]:
        """Its text in the order of reading; steps have their numbers."""
        steps = [f"{number}. {step}" for number, step in enumerate(self.steps, 1)]
        cells = [cell for row in (self.header, *self.rows) for cell in row]
        return [self.heading, *self.paragraphs, *self.bullets, *steps, *cells]


@dataclass(frozen=True)
class Source:
    """A report in one script. ``note`` belongs to the end of its first paragraph; ``charset`` is an old encoding.

    ``planted`` are words that occur once: one for each section, then one of the note.
    """

    script: str
    charset: str
    title: str
    running: str
    planted: list[str]
    note: str
    sections: list[Section]
    rtl: bool = False

    @property
    def table(self) -> Section:
        """The section with the table."""
        return self.sections[2]


@dataclass(frozen=True)
class Place:
    """The part of a document that a word is in: the kind and the label of the part."""

    word: str
    kind: str
    label: str


@dataclass(frozen=True)
class Known:
    """What a file says. ``body`` is in the order of reading; ``notes`` may stand anywhere.

    Words in ``free`` may be repeated or added: labels that a reader writes, running heads, names of columns.
    """

    body: list[str]
    notes: list[str] = field(default_factory=list)
    free: frozenset[str] = frozenset()
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Made:
    """A file that was made: its name, its bytes, what made it, and what is known of it."""

    name: str
    maker: str
    data: bytes
    known: Known

    @property
    def format(self) -> str:
        """The end of its name."""
        return self.name.rpartition(".")[2]


def load() -> list[Source]:
    """The report in every script."""
    texts = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
    return [_source(script, text) for script, text in texts.items()]


def _source(script: str, text: dict) -> Source:
    source = Source(**{**text, "script": script, "sections": [Section(**one) for one in text["sections"]]})
    for number, planted in enumerate(source.planted):
        inside = source.note if number == 4 else "\n".join(source.sections[number].texts())
        whole = "\n".join([source.title, source.note, *(t for s in source.sections for t in s.texts())])
        assert inside.count(planted) == whole.count(planted) == 1, (script, planted)
    return source


def words(*texts: str) -> list[str]:
    """The words of texts after NFKC: runs of letters and digits, and single Chinese signs."""
    return [word for text in texts for word in _WORD.findall(unicodedata.normalize("NFKC", text))]


def report(source: Source, kind: str, labels: Iterable[str], note: bool = True, free: str = "") -> Known:
    """What a file of the whole report says. ``labels`` name the parts of ``kind`` that the sections are."""
    parts = [Place(w, kind, label) for w, label in zip(source.planted[:4], labels, strict=True)]
    noted = [Place(source.planted[4], kind, parts[0].label)] if note else []
    body = words(source.title, *(text for section in source.sections for text in section.texts()))
    free += " Footnote Header Notes 1 " + " ".join(source.table.header)
    return Known(body, words(source.note) if note else [], frozenset(words(free)), (*parts, *noted))


def headings(source: Source) -> list[str]:
    """The headings of its sections."""
    return [section.heading for section in source.sections]
