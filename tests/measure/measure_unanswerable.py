"""How well a model knows what a text does not say: ``python measure_unanswerable.py [--questions 1000] ...``.

Questions of half A of SQuAD's development set are asked of their own paragraph, and others of another paragraph of the
same article that has none of their answers; the same in every run. Prints the share of the latter that were told so,
and that of the former that were refused. With --picture, draws the risk (the share of given answers that are wrong)
against the coverage (the share of questions answered), from the most confident answer to the least. Settings are given
as NAME=VALUE. With --out, an interrupted run goes on where it was.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from measure_answers import contains, plain
from measure_reading import ANSWER, DATA, Asked, answer_all, mean

from localctx.session import Session
from localctx.settings import load_settings, with_changes

Rated = tuple[float, bool]
"""The confidence in an answer, and whether the answer is right."""


def main() -> None:
    """Print the figures, or the reason why nothing can be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=DATA / "squad-dev-A.json")
    parser.add_argument("--questions", type=int, default=1_000, help="of each kind (1000)")
    parser.add_argument("--out", type=Path, help="a file of results, one JSON object a line")
    parser.add_argument("--picture", type=Path, help="write the curve here, as PNG")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    given = parser.parse_args()
    if not given.file.exists():
        sys.exit(f"{given.file} is absent: nothing to measure")
    changes = dict(setting.split("=", 1) for setting in given.settings)
    settings = with_changes(load_settings(mode="full", max_tokens=ANSWER, embedder="none"), changes)
    asked = sample(json.loads(given.file.read_text(encoding="utf-8")), given.questions)
    with Session(settings) as session:
        reports = list(answer_all(session, asked, given.out, " ".join(given.settings)))
    results = figures(asked, reports)
    print(json.dumps(results, indent=2))
    if given.picture:
        draw([tuple(point) for point in results["curve"]], given.picture)


def sample(articles: Sequence[dict[str, Any]], count: int) -> list[Asked]:
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
    main()
