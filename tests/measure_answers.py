"""How often answers from passages are right: ``python tests/measure_answers.py [squad.json] [questions] [passages]``.

Each article of the data (see measure_retrieval.py) becomes one document; five questions of each, the same in every run,
are asked in retrieve mode, and again of the right paragraph alone. Prints recall at 1 and 3 after ranking, the share of
answers that contain a right one both ways, and how often what they cite lies in the right paragraph. Deterministic.
"""

import json
import re
import string
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from measure_retrieval import DATA, sample

from localctx.engine.events import Done
from localctx.loading import Loader
from localctx.session import Session
from localctx.settings import load_settings

ANSWER = 64  # tokens


@dataclass(frozen=True)
class Outcome:
    """One question: the rank of its paragraph (0: not among those ranked), and what was right."""

    rank: int
    right: bool
    right_alone: bool
    cited: bool
    reused: float


def main(path: Path = DATA, count: int = 5, passages: int = 0) -> None:
    """Print each question as it is answered, then the figures; or why there are none."""
    if not path.exists():
        sys.exit(f"{path} is absent: nothing to measure")
    settings = load_settings(max_tokens=ANSWER, passages=passages, mode="retrieve")
    loader = Loader()
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(settings, loader=loader) as passages_only,
        Session(replace(settings, mode="full"), loader=loader) as whole,
    ):
        outcomes = list(measure(passages_only, whole, json.loads(path.read_text()), count, Path(folder)))
    total, right = len(outcomes), [o for o in outcomes if o.right]
    for k in (1, 3):
        share = sum(0 < o.rank <= k for o in outcomes) / total
        print(f"the right paragraph among the first {k} after ranking: {share:.3f}")
    print(f"answers that contain a right one: {len(right) / total:.3f} of {total}")
    print(f"given the right paragraph:        {sum(o.right_alone for o in outcomes) / total:.3f}")
    if right:
        print(
            f"of the right answers, those that cite the right paragraph: {sum(o.cited for o in right) / len(right):.3f}"
        )


def measure(
    passages_only: Session, whole: Session, articles: list[dict], count: int, folder: Path
) -> Iterator[Outcome]:
    """Ask ``count`` questions of each article."""
    for article, asked in zip(articles, sample(articles, count), strict=True):
        file = folder / f"{article['title']}.txt"
        file.write_text("\n\n".join(p["text"] for p in article["paragraphs"]), encoding="utf-8")
        for q in asked:
            paragraph = folder / "paragraph.txt"
            paragraph.write_text(q.paragraph, encoding="utf-8")
            found, alone = ask(passages_only, file, q.words), ask(whole, paragraph, q.words)
            ranks = [i for i, p in enumerate(found["passages"], 1) if within(p, q.start, q.end)]
            outcome = Outcome(
                rank=ranks[0] if ranks else 0,
                right=contains(found["answer"], q.answers),
                right_alone=contains(alone["answer"], q.answers),
                cited=any(q.start <= c["start"] and c["end"] <= q.end for c in found["citations"]),
                reused=found["ranking"]["reused"] / found["ranking"]["tokens"],
            )
            print(json.dumps({"question": q.words, "answer": found["answer"], **vars(outcome)}), flush=True)
            yield outcome


def ask(session: Session, file: Path, question: str) -> dict[str, Any]:
    """The report of one answer."""
    *_, done = session.ask([str(file)], question)
    assert isinstance(done, Done)
    return done.report


def within(passage: dict[str, Any], start: int, end: int) -> bool:
    """Whether a passage has more than half of the paragraph."""
    return 2 * (min(passage["end"], end) - max(passage["start"], start)) > end - start


def contains(answer: str, right: list[str]) -> bool:
    """Whether one of the right answers is in the answer, articles, case and punctuation apart (as SQuAD compares)."""
    return any(f" {plain(r)} " in f" {plain(answer)} " for r in right)


def plain(text: str) -> str:
    """Words alone."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), *map(int, sys.argv[2:4]))
