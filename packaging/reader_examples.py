"""Makes the examples that a reader is trained on: documents, questions about them, and short answers in their words.

Three kinds of question are mixed: those that a document answers, those that it does not (taken from other paragraphs
that are like it), and questions that continue a conversation.
"""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from localctx.engine.prompt_wording import NOT_SAID

MAX_WORDS = 1_300  # of the documents of one example: about 2,000 tokens
UNANSWERABLE = 0.4  # questions without an answer, for each one that has an answer
CONTINUED = 0.2  # share of questions that become the second of a conversation
ELLIPTICAL = "when", "where", "who", "why", "how"
_GROUPS = 1, 1, 1, 1, 2, 2, 3, 3, 5, 8  # paragraphs of an example, drawn with equal odds
_WORD = re.compile(r"\w+")

Turn = tuple[str, str]
"""A question and its answer."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph and its questions; ``story`` names the text it is from, empty if nothing else is from there."""

    text: str
    questions: Sequence[Turn]
    story: str = ""


@dataclass
class Example:
    """The ``texts`` of one prompt, and conversations about them: a list of turns each."""

    texts: list[str]
    conversations: list[list[Turn]] = field(default_factory=list)


def load_paragraphs(folder: Path) -> tuple[list[Paragraph], list[Paragraph]]:
    """Returns the paragraphs of encyclopaedia articles and those of stories, from the data in ``folder``."""
    articles, stories = (_read(folder / name) for name in ("squad-train.json", "fairytale-train.json"))
    return articles, stories


def make_examples(folder: Path, seed: int) -> Iterator[tuple[int, Example]]:
    """Yield epochs without end: the number of the epoch and an example, in the order of ``seed``."""
    articles, stories = load_paragraphs(folder)
    likeness = _Likeness([p.text for p in articles])
    epoch = 0
    while True:
        rng = random.Random(f"{seed} {epoch}")
        examples = [*_of_articles(articles, likeness, rng), *_of_stories(stories, rng)]
        rng.shuffle(examples)
        yield from ((epoch, example) for example in examples)
        epoch += 1


def _read(file: Path) -> list[Paragraph]:
    sources = json.loads(file.read_text(encoding="utf-8"))
    return [
        Paragraph(
            part["text"],
            [(q["question"], q["answers"][0].strip()) for q in part["questions"]],
            source["title"] if len(sources) > 1 else "",
        )
        for source in sources
        for part in source["paragraphs"]
    ]


class _Likeness:
    """Finds the paragraphs that are most like one: by the cosine of their words, weighted by rarity (TF-IDF)."""

    def __init__(self, texts: Sequence[str]) -> None:
        words = [_WORD.findall(text.lower()) for text in texts]
        ids = {word: i for i, word in enumerate(sorted({w for some in words for w in some}))}
        counts = np.zeros((len(texts), len(ids)), np.float32)
        for row, some in zip(counts, words, strict=True):
            np.add.at(row, [ids[w] for w in some], 1)
        weighted = np.log1p(counts) * np.log(len(texts) / (counts > 0).sum(0))
        weighted /= np.linalg.norm(weighted, axis=1, keepdims=True)
        similar = weighted @ weighted.T
        np.fill_diagonal(similar, -1)
        self.nearest = np.argsort(-similar, axis=1)[:, :40]


def _of_articles(paragraphs: Sequence[Paragraph], likeness: _Likeness, rng: random.Random) -> Iterator[Example]:
    """Yield examples that have every paragraph once, alone or among others; half of the others are like it."""
    unused = list(range(len(paragraphs)))
    rng.shuffle(unused)
    left = dict.fromkeys(unused)
    while left:
        first = next(iter(left))
        near = [i for i in likeness.nearest[first] if i in left]
        others = [i for i in left if i != first]
        group = [first]
        for _ in range(rng.choice(_GROUPS) - 1):
            pick = near.pop(0) if near and rng.random() < 0.5 else rng.choice(others) if others else first
            if pick not in group and _words(paragraphs[i].text for i in [*group, pick]) <= MAX_WORDS:
                group.append(pick)
        for i in group:
            del left[i]
        rng.shuffle(group)
        foreign = [q for i in group for near in likeness.nearest[i][:12] for q in paragraphs[near].questions]
        yield _example([paragraphs[i] for i in group], foreign, rng, joined=rng.random() < 0.3)


def _of_stories(paragraphs: Sequence[Paragraph], rng: random.Random) -> Iterator[Example]:
    """Yield examples of consecutive parts of one story, as one document or as several."""
    start = 0
    while start < len(paragraphs):
        stop, wanted = start + 1, rng.choice(_GROUPS)
        while stop < len(paragraphs) and stop - start < wanted and _continues(paragraphs, start, stop):
            stop += 1
        group, start = paragraphs[start:stop], stop
        if any(p.questions for p in group):
            inside = {id(p) for p in group}
            story = [q for p in paragraphs if p.story == group[0].story and id(p) not in inside for q in p.questions]
            others = rng.choice(paragraphs).questions
            foreign = [*rng.sample(story, min(len(story), 6)), *others]
            yield _example(group, foreign, rng, joined=rng.random() < 0.7)


def _continues(paragraphs: Sequence[Paragraph], start: int, stop: int) -> bool:
    same = paragraphs[stop].story == paragraphs[start].story
    return same and _words(p.text for p in paragraphs[start : stop + 1]) <= MAX_WORDS


def _words(texts: Iterator[str]) -> int:
    return sum(len(text.split()) for text in texts)


def _example(group: Sequence[Paragraph], foreign: Sequence[Turn], rng: random.Random, joined: bool) -> Example:
    """The example of a group of paragraphs, ``joined`` to one document, and of ``foreign`` questions."""
    texts = [p.text for p in group]
    example = Example(["\n\n".join(texts)] if joined else texts)
    whole = " ".join(texts).lower()
    for paragraph in group:
        example.conversations += _conversations(paragraph.questions, rng)
    unanswered = [q for q, answer in foreign if answer.lower() not in whole]
    asked = sum(len(p.questions) for p in group)
    count = int(asked * UNANSWERABLE + rng.random())
    example.conversations += [[(q, NOT_SAID)] for q in rng.sample(unanswered, min(count, len(unanswered)))]
    return example


def _conversations(questions: Sequence[Turn], rng: random.Random) -> Iterator[list[Turn]]:
    """Yield each question once: alone, or after another one, shortened where that one says what is asked about."""
    for i, turn in enumerate(questions):
        earlier = questions[i - 1] if i else questions[-1]
        shortened = _shortened(earlier[0], turn[0])
        if earlier != turn and (shortened or rng.random() < CONTINUED):
            yield [earlier, (shortened or turn[0], turn[1])]
        else:
            yield [turn]


def _shortened(earlier: str, question: str) -> str:
    """Returns "And when?" for a question that differs from the ``earlier`` one in little else, else nothing."""
    (first, *before), (word, *after) = (_WORD.findall(q.lower()) or [""] for q in (earlier, question))
    shared = len(set(before) & set(after)) / max(1, len(set(after)))
    return f"And {word}?" if word in ELLIPTICAL and word != first and shared >= 0.6 else ""
