"""Makes everyday documents in which several facts are alike, with questions about them: price lists, timetables,
minutes, contracts. A reader that takes a near miss for the answer learns from them to look at each word of a question.

The words are in near_misses.toml. A document has some things and some facts about each of them, as a table, a list,
sentences or rows of a spreadsheet.
"""

import random
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yes_or_no import Turn

from localctx.engine.prompt_wording import NOT_SAID

MOST_THINGS, MOST_FACTS = 7, 5  # of a document
LEFT_OUT = 0.12  # share of the facts that a document does not have
CHECKS = 0.25  # share of the facts that are asked as yes-or-no questions
FINDS = 0.3  # share of the facts whose value is given, and whose thing is asked for
TERSE = 0.1  # share of the questions that are typed without capitals and signs
_NUMBER = re.compile(r"\{(?P<low>\d+(?:\.\d)?)\.\.(?P<high>\d+(?:\.\d)?)(?:/(?P<step>\d+))?\}")
_ONE = re.compile(r"(?<![\d.,-])(1 (?:working )?(?:day|week|month|year|hour|credit|point|tablet|user|spoon))s\b")
_ARTICLE = re.compile(r"(?:the|der|die|das|le|la|les) ")
_ANSWER = re.compile(r"((?:(?:Yes|No), )?)(.*?)(\.?)")
_FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Fact:
    """A kind of fact, with its ``name``, the ways to write it and to ask for it. ``values`` are values or patterns."""

    name: str
    values: Sequence[str]
    says: Sequence[str]
    asks: Sequence[str]
    checks: Sequence[str] = ()
    finds: Sequence[str] = ()


@dataclass(frozen=True)
class Topic:
    """What documents of one kind are about."""

    title: Sequence[str]
    kind: str
    things: Sequence[str]
    facts: Sequence[Fact]
    held_out: bool = False


@dataclass(frozen=True)
class Sheet:
    """A document, the questions that it answers, and questions like them that it does not answer."""

    text: str
    answered: Sequence[Turn]
    unanswered: Sequence[Turn]


@dataclass(frozen=True)
class _Chosen:
    """The things and facts of a document. ``values`` has those that the document gives, by thing and name of the fact.

    ``absent`` are things that the document does not name, and ``unsaid`` facts that it does not give.
    """

    topic: Topic
    things: Sequence[str]
    facts: Sequence[Fact]
    values: Mapping[tuple[str, str], str]
    absent: Sequence[str]
    unsaid: Sequence[Fact]


def load_topics(held_out: bool = False) -> list[Topic]:
    """Returns the topics that are trained on, or those that are held out."""
    return [topic for topic in _topics() if topic.held_out == held_out]


def _topics() -> Iterator[Topic]:
    for topic in tomllib.loads(_FILE.read_text(encoding="utf-8"))["topics"]:
        facts: list[dict[str, Any]] = topic.pop("facts")
        yield Topic(**topic, facts=[Fact(**fact) for fact in facts])


def make_sheet(topic: Topic, rng: random.Random) -> Sheet:
    """Returns a document about some things of ``topic``, in a random layout."""
    chosen = _choose(topic, rng)
    text = rng.choice(_LAYOUTS)(chosen, rng)
    return Sheet(
        f"{rng.choice(topic.title)}\n\n{text}", list(_answered(chosen, text, rng)), list(_unanswered(chosen, rng))
    )


def _choose(topic: Topic, rng: random.Random) -> _Chosen:
    things = rng.sample(topic.things, len(topic.things))
    facts = rng.sample(topic.facts, len(topic.facts))
    first, some = rng.randint(2, min(MOST_THINGS, len(things) - 1)), rng.randint(1, min(MOST_FACTS, len(facts) - 1))
    values = dict[tuple[str, str], str]()
    for fact in facts[:some]:
        for thing, value in zip(things, _values(fact, first, rng), strict=False):
            if not values or rng.random() > LEFT_OUT:  # a document has at least one fact
                values[thing, fact.name] = value
    return _Chosen(topic, things[:first], facts[:some], values, things[first:], facts[some:])


def _values(fact: Fact, number: int, rng: random.Random) -> list[str]:
    """Returns up to ``number`` values that differ. Numbers of one document are in one form."""
    patterns = [value for value in fact.values if _NUMBER.search(value)]
    if not patterns:
        return rng.sample(fact.values, min(number, len(fact.values)))
    pattern = rng.choice(patterns)
    return list(dict.fromkeys(_filled(pattern, rng) for _ in range(8 * number)))[:number]


def _filled(pattern: str, rng: random.Random) -> str:
    def number(found: re.Match[str]) -> str:
        low, high, step = found["low"], found["high"], int(found["step"] or 1)
        if "." in low:
            return str(rng.randint(round(10 * float(low)), round(10 * float(high))) / 10)
        return str(rng.randrange(int(low), int(high) + 1, step))

    return _ONE.sub(r"\1", _NUMBER.sub(number, pattern))


def _as_table(chosen: _Chosen, rng: random.Random) -> str:
    """Returns a Markdown table with a row for each thing, or with a column for each."""
    rows = [["", *(fact.name for fact in chosen.facts)]]
    rows += [[_label(thing), *(_cell(chosen, thing, fact) for fact in chosen.facts)] for thing in chosen.things]
    if rng.random() < 0.35:
        rows = [list(column) for column in zip(*rows, strict=True)]
    rows[0][0] = rng.choice(["", chosen.topic.kind.capitalize()])
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _as_rows(chosen: _Chosen, rng: random.Random) -> str:
    """Returns the rows of a spreadsheet, as localctx writes them."""
    rows = [{chosen.topic.kind.capitalize(): _label(thing), **_named(chosen, thing)} for thing in chosen.things]
    return "\n\n".join("; ".join(f"{name}: {value}" for name, value in row.items()) for row in rows)


def _as_list(chosen: _Chosen, rng: random.Random) -> str:
    """Returns a heading for each thing, and its facts as a list."""
    heading, colon = rng.choice(["### {}", "{}", "**{}**"]), rng.choice([": ", " - ", "  "])
    return "\n\n".join(
        "\n".join([heading.format(_label(thing)), *(f"- {n}{colon}{v}" for n, v in _named(chosen, thing).items())])
        for thing in chosen.things
    )


def _by_thing(chosen: _Chosen, rng: random.Random) -> str:
    """Returns a paragraph for each thing, with a sentence for each of its facts."""
    paragraphs = ([_sentence(chosen, thing, fact, rng) for fact in chosen.facts] for thing in chosen.things)
    return "\n\n".join(" ".join(filter(None, sentences)) for sentences in paragraphs)


def _by_fact(chosen: _Chosen, rng: random.Random) -> str:
    """Returns a paragraph for each fact, with a sentence for each thing that has it."""
    paragraphs = ([_sentence(chosen, thing, fact, rng) for thing in chosen.things] for fact in chosen.facts)
    numbered = rng.random() < 0.4
    return "\n\n".join(
        f"{number}. {fact.name}. " * numbered + " ".join(filter(None, sentences))
        for number, (fact, sentences) in enumerate(zip(chosen.facts, paragraphs, strict=True), 1)
    )


_LAYOUTS: Sequence[Callable[[_Chosen, random.Random], str]] = (_as_table, _as_rows, _as_list, _by_thing, _by_fact)


def _bare(thing: str) -> str:
    return thing[found.end() :] if (found := _ARTICLE.match(thing)) else thing


def _label(thing: str) -> str:
    name = _bare(thing)
    return name[0].upper() + name[1:]


def _cell(chosen: _Chosen, thing: str, fact: Fact) -> str:
    return chosen.values.get((thing, fact.name), "-")


def _named(chosen: _Chosen, thing: str) -> dict[str, str]:
    """Returns the facts of a thing: each one's name and value."""
    values = ((fact.name, chosen.values.get((thing, fact.name))) for fact in chosen.facts)
    return {name: value for name, value in values if value}


def _sentence(chosen: _Chosen, thing: str, fact: Fact, rng: random.Random) -> str:
    value = chosen.values.get((thing, fact.name))
    if not value:
        return ""
    sentence = rng.choice(fact.says).format(thing=thing, value=value)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _answered(chosen: _Chosen, text: str, rng: random.Random) -> Iterator[Turn]:
    """Yield the questions about the facts that the document has, with answers in its upper and lower case."""
    for fact in chosen.facts:
        values = {thing: chosen.values.get((thing, fact.name), "") for thing in chosen.things}
        for thing, value in values.items():
            if value:
                others = [other for other in values.values() if other]
                for question, answer in _asked(fact, thing, value, others, rng):
                    yield question, _as_written(answer, text)


def _asked(fact: Fact, thing: str, value: str, others: Sequence[str], rng: random.Random) -> Iterator[Turn]:
    """Yield a question for a fact, maybe one with yes or no, and maybe one that asks for the thing."""
    yield _typed(rng.choice(fact.asks).format(thing=thing), rng), value
    if fact.checks and rng.random() < CHECKS:
        asked = rng.choice([value, *others])
        question = rng.choice(fact.checks).format(thing=thing, value=asked)
        yield question, f"{'Yes' if asked == value else 'No'}, {value}."
    if fact.finds and rng.random() < FINDS:
        yield _typed(rng.choice(fact.finds).format(value=value), rng), _bare(thing)


def _unanswered(chosen: _Chosen, rng: random.Random) -> Iterator[Turn]:
    """Yield questions about facts that the document leaves out, and about things that it does not name."""
    known, unknown = list(chosen.things), list(chosen.absent)
    asked = [(thing, fact) for fact in chosen.facts for thing in known if (thing, fact.name) not in chosen.values]
    asked += [(rng.choice(unknown), fact) for fact in chosen.facts for _ in range(2)]
    asked += [(rng.choice(known), fact) for fact in chosen.unsaid]
    for thing, fact in asked:
        yield _typed(rng.choice(fact.asks).format(thing=thing), rng), NOT_SAID


def _as_written(answer: str, text: str) -> str:
    """Returns the answer with its words in the upper and lower case of ``text``."""
    said, words, end = _ANSWER.fullmatch(answer).groups()  # type: ignore[union-attr]  # any text matches
    found = re.search(re.escape(words), text, re.IGNORECASE)
    return f"{said}{found.group() if found else words}{end}"


def _typed(question: str, rng: random.Random) -> str:
    """Returns the question as some people type it: without capitals and without a question mark."""
    return question.rstrip("?").lower() if rng.random() < TERSE else f"{question[0].upper()}{question[1:]}"
