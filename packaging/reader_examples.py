"""Makes the examples that a reader is trained on: documents, questions about them, and short answers in the documents'
words.

The examples mix four kinds of questions: questions that the documents answer, questions that they do not answer (from
similar paragraphs), questions that continue a conversation, and yes-or-no questions. Yes-or-no questions made from
another question come in pairs: one with the answer yes, one with the answer no. A document is one paragraph or several
joined ones, up to about 8,000 tokens. Half of the examples have made documents with near misses.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
import yes_or_no
from near_misses import Topic, load_topics, make_sheet
from yes_or_no import Turn

from localctx.engine.prompt_wording import NOT_SAID

HELD_OUT = 60  # one of so many article paragraphs, and one of so many stories, is held out of training
LENGTHS = {0: 10, 200: 5, 400: 5, 700: 4, 1_400: 3, 2_800: 3, 5_600: 2}
"""The words of an example's documents (0: one paragraph), and how often each length is drawn."""
MAX_QUESTIONS = 32  # per example, not counting questions without an answer
UNANSWERABLE = 0.4  # questions without an answer, for each one that has an answer
SHEETS = 1, 1, 2, 3  # made documents of an example
FILLERS = 0, 0, 1, 3  # article paragraphs beside them
CONTINUED = 0.12  # share of questions that are asked as the second one of a conversation
YES_OR_NO = 0.4  # share of the suitable questions that become yes-or-no questions
STATEMENTS = 0.5  # share of the suitable statements that become questions
ELLIPTICAL = "when", "where", "who", "why", "how"
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph and its questions. ``story`` is the title of the text that the paragraph is from; empty if the file
    has only one text.
    """

    text: str
    questions: Sequence[Turn]
    story: str = ""


@dataclass
class Example:
    """One training example: the ``texts`` of a prompt, and conversations about them, each a list of turns."""

    texts: list[str]
    conversations: list[list[Turn]] = field(default_factory=list)


class ReaderData:
    """The training data in ``folder``: paragraphs of encyclopaedia articles and of stories. With ``held_out``, only the
    paragraphs that are held out of training; else only the others. ``longest`` is the greatest length that is drawn.
    """

    def __init__(self, folder: Path, held_out: bool = False, longest: int = max(LENGTHS)) -> None:
        articles = _read(folder / "squad-train.json")
        self.articles = [p for i, p in enumerate(articles) if (i % HELD_OUT == 0) == held_out]
        stories = _read(folder / "fairytale-train.json")
        titles = {title: i for i, title in enumerate(dict.fromkeys(p.story for p in stories))}
        self.stories = [p for p in stories if (titles[p.story] % HELD_OUT == 0) == held_out]
        self.topics = load_topics(held_out)
        self._lengths = {length: often for length, often in LENGTHS.items() if length <= longest}
        self._likeness = _Likeness([p.text for p in self.articles])

    def epoch(self, seed: int, number: int = 0) -> list[Example]:
        """Returns the examples of epoch ``number``, which are chosen and shuffled with ``seed``."""
        rng = random.Random(f"{seed} {number}")
        examples = [
            *_of_articles(self.articles, self._likeness, self._lengths, rng),
            *_of_stories(self.stories, self._lengths, rng),
        ]
        examples += [_of_sheets(self.topics, self.articles, rng) for _ in examples]
        rng.shuffle(examples)
        return examples

    def examples(self, seed: int) -> Iterator[Example]:
        """Yield the examples of one epoch after another, without end."""
        for number in count():
            yield from self.epoch(seed, number)


def _read(file: Path) -> list[Paragraph]:
    sources = json.loads(file.read_text(encoding="utf-8"))
    return [
        Paragraph(
            part["text"],
            [(_joined(q["question"]), _in_words_of(part["text"], q["answers"][0])) for q in part["questions"]],
            source["title"] if len(sources) > 1 else "",
        )
        for source in sources
        for part in source["paragraphs"]
    ]


def _in_words_of(text: str, answer: str) -> str:
    """Returns ``answer`` in the upper and lower case it has in ``text``, or unchanged if ``text``
    does not contain it.
    """
    answer = _joined(answer)
    found = re.search(r"\s+".join(map(re.escape, answer.split())), text, re.IGNORECASE)
    return " ".join((found.group() if found else answer).split())


def _joined(text: str) -> str:
    """Returns ``text`` without the spaces that some data have before 's, n't and punctuation."""
    return re.sub(r" +(?=['\u2019]s\b|n['\u2019]t\b|[.,!?;:](\s|$))", "", text).strip()


class _Likeness:
    """Finds the paragraphs most similar to each paragraph, by the cosine of their TF-IDF vectors."""

    def __init__(self, texts: Sequence[str]) -> None:
        words = [_WORD.findall(text.lower()) for text in texts]
        ids = {word: i for i, word in enumerate(sorted({w for some in words for w in some}))}
        counts = np.zeros((len(texts), len(ids)), np.float32)
        for row, some in zip(counts, words, strict=True):
            np.add.at(row, [ids[w] for w in some], 1)
        weighted = np.log1p(counts) * np.log(len(texts) / (counts > 0).sum(0))
        weighted /= np.linalg.norm(weighted, axis=1, keepdims=True) + 1e-9
        similar = weighted @ weighted.T
        np.fill_diagonal(similar, -1)
        self.nearest = np.argsort(-similar, axis=1)[:, :40]


def _of_articles(
    paragraphs: Sequence[Paragraph], likeness: _Likeness, lengths: Mapping[int, int], rng: random.Random
) -> Iterator[Example]:
    """Yield examples of article paragraphs. Each paragraph is used once, alone or with others. About half of the others
    are similar to the first paragraph of the example.
    """
    unused = list(range(len(paragraphs)))
    rng.shuffle(unused)
    left = dict.fromkeys(unused)
    while left:
        first = next(iter(left))
        near = [i for i in likeness.nearest[first] if i in left]
        others = [i for i in left if i != first]
        group, wanted = {first: None}, _draw_length(lengths, rng)
        length = _words(paragraphs[first].text)
        while length < wanted and len(group) < len(left):
            pick = near.pop(0) if near and rng.random() < 0.5 else rng.choice(others)
            if pick not in group:
                group[pick], length = None, length + _words(paragraphs[pick].text)
        for i in group:
            del left[i]
        chosen = list(group)
        rng.shuffle(chosen)
        near_them = [paragraphs[near] for i in chosen for near in likeness.nearest[i][:12]]
        foreign = [q for near in near_them for q in near.questions]
        foreign += [q for near in near_them[:12] for q in yes_or_no.of_text(near.text, rng)]
        joined = wanted > 1_000 or rng.random() < 0.3
        yield _example([paragraphs[i] for i in chosen], foreign, rng, joined)


def _of_stories(paragraphs: Sequence[Paragraph], lengths: Mapping[int, int], rng: random.Random) -> Iterator[Example]:
    """Yield examples of consecutive paragraphs of one story, as one document or as several."""
    start = 0
    while start < len(paragraphs):
        stop, wanted = start + 1, _draw_length(lengths, rng)
        length = _words(paragraphs[start].text)
        while stop < len(paragraphs) and length < wanted and paragraphs[stop].story == paragraphs[start].story:
            stop, length = stop + 1, length + _words(paragraphs[stop].text)
        group, start = paragraphs[start:stop], stop
        if any(p.questions for p in group):
            inside = {id(p) for p in group}
            story = [q for p in paragraphs if p.story == group[0].story and id(p) not in inside for q in p.questions]
            others = rng.choice(paragraphs).questions
            foreign = [*rng.sample(story, min(len(story), 6)), *others]
            yield _example(group, foreign, rng, joined=rng.random() < 0.7)


def _of_sheets(topics: Sequence[Topic], articles: Sequence[Paragraph], rng: random.Random) -> Example:
    """Returns an example of made documents with near misses, with article paragraphs among them."""
    sheets = [make_sheet(topic, rng) for topic in rng.sample(topics, min(rng.choice(SHEETS), len(topics)))]
    texts = [*(s.text for s in sheets), *(p.text for p in rng.choices(articles, k=rng.choice(FILLERS)))]
    rng.shuffle(texts)
    answered = [turn for sheet in sheets for turn in sheet.answered]
    unanswered = [turn for sheet in sheets for turn in sheet.unanswered]
    asked = rng.sample(answered, min(len(answered), MAX_QUESTIONS))
    example = Example(["\n\n".join(texts)] if rng.random() < 0.7 else texts)
    count = min(len(unanswered), max(1, int(UNANSWERABLE * len(asked))))
    for turn in [*asked, *rng.sample(unanswered, count)]:
        example.conversations.append([rng.choice(asked), turn] if rng.random() < CONTINUED else [turn])
    return example


def _draw_length(lengths: Mapping[int, int], rng: random.Random) -> int:
    return rng.choices(list(lengths), list(lengths.values()))[0]


def _words(text: str) -> int:
    return len(text.split())


def _example(group: Sequence[Paragraph], foreign: Sequence[Turn], rng: random.Random, joined: bool) -> Example:
    """Returns an example about the paragraphs ``group``. They are one document if ``joined`` is True. Some ``foreign``
    questions, which come from other paragraphs, are added as questions without an answer.
    """
    texts = [p.text for p in group]
    example = Example(["\n\n".join(texts)] if joined else texts)
    whole = " ".join(texts).lower()
    for paragraph in group:
        example.conversations += _conversations(paragraph.questions, rng)
        statements = yes_or_no.of_text(paragraph.text, rng)
        example.conversations += [[turn] for turn in statements if rng.random() < STATEMENTS]
    if len(example.conversations) > MAX_QUESTIONS:
        example.conversations = rng.sample(example.conversations, MAX_QUESTIONS)
    unanswered = [q for q, answer in foreign if answer.lower() not in whole]
    count = int(len(example.conversations) * UNANSWERABLE + rng.random())
    example.conversations += [[(q, NOT_SAID)] for q in rng.sample(unanswered, min(count, len(unanswered)))]
    return example


def _conversations(questions: Sequence[Turn], rng: random.Random) -> Iterator[list[Turn]]:
    """Yield conversations that ask each question once. A question is asked alone, after another question, or as two
    yes-or-no questions. After a question about the same thing it is shortened.
    """
    for i, turn in enumerate(questions):
        earlier = questions[i - 1] if i else questions[-1]
        shortened = _shortened(earlier[0], turn[0])
        if earlier != turn and (shortened or rng.random() < CONTINUED):
            yield [earlier, (shortened or turn[0], turn[1])]
        elif rng.random() < YES_OR_NO and (pair := yes_or_no.of_turn(turn, questions, rng)):
            yield from ([one] for one in pair)
        else:
            yield [turn]


def _shortened(earlier: str, question: str) -> str:
    """Returns a short form such as "And when?" if the question differs from the ``earlier`` one in little but its first
    word; else an empty text.
    """
    (first, *before), (word, *after) = (_WORD.findall(q.lower()) or [""] for q in (earlier, question))
    shared = len(set(before) & set(after)) / max(1, len(set(after)))
    return f"And {word}?" if word in ELLIPTICAL and word != first and shared >= 0.6 else ""
