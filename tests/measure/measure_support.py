"""How far an answer can be trusted: ``python measure_support.py numbers|unanswerable [options]``.

Both ask questions of half A of SQuAD's development set, the same in every run.

``numbers [squad.json] [--questions 50] ...``: how true the numbers after sentences are. The questions are asked about
their article, or with --paragraph about their own paragraph. Of the sentences of all answers it prints how many were
numbered, dimmed and left as they are, and the share of the numbered ones whose passage really holds the words. A
passage holds a sentence if every content word (whatever is not an article, a pronoun, a preposition, an auxiliary or
the like) and every number of the sentence stands in the passage, up to inflection: the two words are the same but for
case, a plural or possessive s, -ed, -ing, -er, -en, or a common beginning of at least four letters with at most three
other letters after it. This is decided here, by other code than that of localctx. Numbered sentences whose passage
misses a word are printed with it, and with --all every sentence. With --ask the question is put in other words, for
example --ask "Explain in two sentences: {}".

``unanswerable [--questions 1000] ...``: how well a model knows what a text does not say. The questions are asked of
their own paragraph, and others of another paragraph of the same article that has none of their answers. Prints the
share of the latter that were told so, and that of the former that were refused. With --picture, draws the risk (the
share of given answers that are wrong) against the coverage (the share of questions answered), from the most confident
answer to the least. With --words, the paragraphs of an article are first joined to texts of at least so many words,
which are kept in the data folder, so that each is read once. Settings are given as NAME=VALUE. With --out, an
interrupted run goes on where it was.
"""

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import harness
from measure_answers import ask, contains, plain
from measure_reading import ANSWER, DATA, SETS, Asked, answer_all, mean, sample

from localctx.session import Session
from localctx.settings import load_settings, with_changes

# --- Numbers after sentences


COMMON = frozenset(
    re.findall(
        r"\w+",
        "a about above after again against all also although always am among an and any are as at be because "
        "been before being below between both but by can could did do does doing done down during each either "
        "ever every for from had has have having he her here hers him his how however i if in into is it its "
        "itself just like many may me might more most much must my no nor not of off on once one only or "
        "other our out over own per same shall she should since so some such than that the their theirs them "
        "then there therefore these they this those though through thus to too under until up upon us very "
        "was we well were what when where whether which while who whom whose why will with within without "
        "would yes yet you your s t ",
    )
)
NUMBERS = re.findall(r"\w+", "zero one two three four five six seven eight nine ten eleven twelve")


def measure_numbers(arguments: list[str]) -> None:
    """Print the misses and the figures, or the reason why nothing can be measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", type=Path, default=DATA / SETS["half A"])
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--paragraph", action="store_true", help="ask about the paragraph, not the whole article")
    parser.add_argument("--ask", default="{}", help="the words of a question, {} stands for the question itself")
    parser.add_argument("--all", action="store_true", help="print every sentence")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of the session")
    given = parser.parse_args(arguments)
    if not given.file.exists():
        sys.exit(f"{given.file} is absent: nothing to measure")
    changes = dict(setting.split("=", 1) for setting in given.set)
    counts = Counter[str]()
    articles = {one["title"]: one for one in json.loads(given.file.read_text(encoding="utf-8"))}
    with tempfile.TemporaryDirectory() as folder, Session(with_changes(load_settings(), changes)) as session:
        for one in sample(given.file, given.questions):
            file = Path(folder) / f"{one.article}.txt"
            whole = "\n\n".join(p["text"] for p in articles[one.article]["paragraphs"])
            file.write_text(one.paragraph if given.paragraph else whole, encoding="utf-8")
            counts += judge(ask(session, file, given.ask.format(one.question)), one.question, given.all)
    report(counts)


def judge(answer: dict[str, Any], question: str, print_all: bool) -> Counter[str]:
    """Count an answer's sentences by what is said of them; print those whose passage lacks a word, or all."""
    counts = Counter(answers=1, **{"withheld answers": answer["stopped"] == "unanswered"})
    for sentence in answer["sentences"]:
        words = answer["answer"][sentence["start"] : sentence["end"]]
        counts[sentence["support"]] += 1
        missing = missing_words(words, sentence["source"]["quote"]) if sentence["source"] else []
        counts["held"] += bool(sentence["source"]) and not missing
        if missing or print_all:
            said = f"[{sentence['number']}]" if sentence["source"] else sentence["support"]
            print(f"{question}\n  {said} {' '.join(words.split())}")
            if sentence["source"]:
                print(f"  passage: {' '.join(sentence['source']['quote'].split())}")
            if missing:
                print(f"  MISSING: {', '.join(missing)}")
            sys.stdout.flush()
    return counts


def report(counts: Counter[str]) -> None:
    """Print the figures."""
    print(f"answers: {counts['answers']}, of them withheld because nothing answers: {counts['withheld answers']}")
    numbered = counts["supported"]
    kinds = f"dimmed {counts['unsupported']}, left as they are {counts['unchecked']}"
    print(f"sentences: numbered {numbered}, {kinds}")
    print(f"numbered sentences whose passage holds every word: {counts['held'] / max(1, numbered):.3f} of {numbered}")


def missing_words(sentence: str, passage: str) -> list[str]:
    """Return the content words and numbers of a sentence that a passage does not have, up to inflection."""
    there = words_of(passage)
    return [word for word in words_of(sentence) if word not in COMMON and not any(alike(word, w) for w in there)]


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, and its numbers as digits without separators of thousands."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text.casefold()).replace("’", "'")  # noqa: RUF001
    words = re.findall(r"\d+(?:\.\d+)?|[^\W\d_]+", text)
    return [str(NUMBERS.index(word)) if word in NUMBERS and word != "one" else word for word in words]


def alike(word: str, other: str) -> bool:
    """Return True if two words are the same up to inflection; numbers only if they are the same."""
    if word == other or word[0].isdigit() or other[0].isdigit():
        return word == other
    ends = r"(?:'?s|es|d|ed|ing|er|en|e|y|ies|ied)?"
    same = sum(1 for _ in zip_same(word, other))
    near = same >= 4 and max(len(word), len(other)) - same <= 3
    return near or bool(re.fullmatch(re.escape(word) + ends, other) or re.fullmatch(re.escape(other) + ends, word))


def zip_same(word: str, other: str) -> list[str]:
    """Return the letters that two words begin with."""
    for i, (a, b) in enumerate(zip(word, other, strict=False)):
        if a != b:
            return list(word[:i])
    return list(min(word, other, key=len))


# --- Questions without an answer


Rated = tuple[float, bool]
"""The confidence in an answer, and whether the answer is right."""


def measure_unanswerable(arguments: list[str]) -> None:
    """Print the figures, or the reason why nothing can be measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path, default=DATA / "squad-dev-A.json")
    parser.add_argument("--questions", type=int, default=1_000, help="of each kind (1000)")
    parser.add_argument("--out", type=Path, help="a file of results, one JSON object a line")
    parser.add_argument("--picture", type=Path, help="write the curve here, as PNG")
    parser.add_argument("--words", type=int, default=0, help="join paragraphs to texts of so many words")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    given = parser.parse_args(arguments)
    if not given.file.exists():
        sys.exit(f"{given.file} is absent: nothing to measure")
    changes = dict(setting.split("=", 1) for setting in given.settings)
    settings = with_changes(load_settings(mode="full", max_tokens=ANSWER, embedder="none"), changes)
    articles = [joined(one, given.words) for one in json.loads(given.file.read_text(encoding="utf-8"))]
    asked = sample_both(articles, given.questions)
    with Session(settings) as session:
        how = " ".join([str(given.words), *given.settings])
        reports = list(answer_all(session, asked, given.out, how, persist=bool(given.words)))
    results = figures(asked, reports)
    print(json.dumps(results, indent=2))
    if given.picture:
        draw([tuple(point) for point in results["curve"]], given.picture)


def joined(article: dict[str, Any], words: int) -> dict[str, Any]:
    """Return the article with its paragraphs joined to texts of at least ``words`` words; what remains is left out."""
    if not words:
        return article
    texts, waiting = list[dict[str, Any]](), list[dict[str, Any]]()
    for paragraph in article["paragraphs"]:
        waiting.append(paragraph)
        if sum(len(one["text"].split()) for one in waiting) >= words:
            questions = [question for one in waiting for question in one["questions"]]
            texts.append({"text": "\n\n".join(one["text"] for one in waiting), "questions": questions})
            waiting = []
    return {**article, "paragraphs": texts}


def sample_both(articles: Sequence[dict[str, Any]], count: int) -> list[Asked]:
    """``count`` questions about their own paragraph, and as many others about one without their answers, in turn."""
    chance = random.Random(1)
    asked = [
        (article, Asked(question["question"], paragraph["text"], question["answers"], article["title"]))
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["questions"]
    ]
    chance.shuffle(asked)
    right = [one for _, one in asked[:count]]
    return [one for pair in zip(right, _unanswerable(asked[::-1], count, chance), strict=False) for one in pair]


def _unanswerable(asked: Sequence[tuple[dict[str, Any], Asked]], count: int, chance: random.Random) -> list[Asked]:
    found = list[Asked]()
    for article, one in asked:
        others = [
            p["text"]
            for p in article["paragraphs"]
            if p["text"] != one.paragraph and not any(plain(answer) in plain(p["text"]) for answer in one.answers)
        ]
        if others and len(found) < count:
            found.append(replace(one, paragraph=chance.choice(others), answers=(), article=f"not in {one.article}"))
    return found


def figures(asked: Sequence[Asked], reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the shares, and the curve as pairs of coverage and risk."""
    both = list(zip(asked, reports, strict=True))
    told = [(bool(one.answers), report["stopped"] == "unanswered") for one, report in both]
    rated = [rating for one, report in both if (rating := rate(one, report))]
    given = [contains(r["answer"], list(one.answers)) for one, r in both if r["stopped"] != "unanswered"]
    return {
        "asked of each kind": len(asked) // 2,
        "told that the text does not say": round(mean(unsaid for answerable, unsaid in told if not answerable), 4),
        "answerable, but refused": round(mean(unsaid for answerable, unsaid in told if answerable), 4),
        "answers given": len(given),
        "of these right": round(mean(given), 4),
        "curve": curve(rated, len(asked)),
    }


def rate(one: Asked, report: dict[str, Any]) -> Rated | None:
    """Return the confidence in an answer, given or withheld, and whether it is right; None where there is none."""
    answer = report["withheld"] or (report["answer"] if report["stopped"] != "unanswered" else "")
    if report["confidence"] is None or not answer:
        return None
    return report["confidence"], contains(answer, list(one.answers))


def curve(rated: Sequence[Rated], asked: int) -> list[tuple[float, float]]:
    """Return coverage and risk after each hundredth of the answers, the most confident first."""
    ordered = sorted(rated, reverse=True)
    counts = sorted({max(1, len(ordered) * percent // 100) for percent in range(1, 101)}) if ordered else []
    return [(round(n / asked, 4), round(mean(not right for _, right in ordered[:n]), 4)) for n in counts]


def draw(points: Sequence[tuple[float, ...]], path: Path) -> None:
    """Write the curve as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([x for x, _ in points], [y for _, y in points])
    axes.set(xlabel="share of questions answered", ylabel="share of answers that are wrong", xlim=(0, 1), ylim=(0, 1))
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, format="png")


if __name__ == "__main__":
    harness.run(__doc__, numbers=measure_numbers, unanswerable=measure_unanswerable)
