"""How often answers about long documents are right: ``python measure_answers.py [squad.json] [--mode auto]``.

Each article of the data (see measure_retrieval.py) becomes one document. Five questions about each, the same in every
run, are asked about the document in the given mode, and about the right paragraph alone. Prints recall at 1 and 3 after
ranking; for both ways the share of correct answers, without and with quotations; how many questions were reported as
unanswered; and how often citations lie in the right paragraph. Deterministic.
"""

import argparse
import json
import re
import string
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from measure_retrieval import DATA, sample

from localctx.engine.events import Done
from localctx.engine.model_loader import ModelLoader
from localctx.session import Session
from localctx.settings import load_settings

ANSWER = 64  # tokens


@dataclass(frozen=True)
class Outcome:
    """The result of one question: the rank of its paragraph (0: not ranked), and which answers were correct."""

    rank: int
    right: bool
    right_with_quotations: bool
    right_alone: bool
    unanswered: bool
    repeated: bool
    cited: bool
    reused: int


def main() -> None:
    """Print each answered question, then the figures; or the reason why nothing can be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=DATA)
    parser.add_argument("--questions", type=int, default=5, help="of each article (5)")
    parser.add_argument("--passages", type=int, default=0, help="answered from (as the model was measured to bear)")
    parser.add_argument("--mode", default="auto", help="auto, retrieve or full (auto)")
    given = parser.parse_args()
    if not given.file.exists():
        sys.exit(f"{given.file} is absent: nothing to measure")
    settings = load_settings(max_tokens=ANSWER, passages=given.passages, mode=given.mode)
    loader = ModelLoader()
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(settings, loader=loader) as articles,
        Session(replace(settings, mode="full"), loader=loader) as alone,
    ):
        outcomes = list(measure(articles, alone, json.loads(given.file.read_text()), given.questions, Path(folder)))
    report(outcomes)


def report(outcomes: list[Outcome]) -> None:
    """Print the figures."""
    total, right = len(outcomes), [o for o in outcomes if o.right]
    for k in (1, 3):
        share = sum(0 < o.rank <= k for o in outcomes) / total
        print(f"the right paragraph among the first {k} after ranking: {share:.3f}")
    print(f"answers that contain a right one: {len(right) / total:.3f} of {total}")
    print(f"the same, quotations counted:     {sum(o.right_with_quotations for o in outcomes) / total:.3f}")
    print(f"given the right paragraph:        {sum(o.right_alone for o in outcomes) / total:.3f}")
    print(f"told that nothing answers:        {sum(o.unanswered for o in outcomes)}")
    print(f"ended where they repeated:        {sum(o.repeated for o in outcomes)}")
    if right:
        share = sum(o.cited for o in right) / len(right)
        print(f"of the right answers, those that cite the right paragraph: {share:.3f}")


def measure(session: Session, whole: Session, articles: list[dict], count: int, folder: Path) -> Iterator[Outcome]:
    """Ask ``count`` questions of each article."""
    for article, asked in zip(articles, sample(articles, count), strict=True):
        file = folder / f"{article['title']}.txt"
        file.write_text("\n\n".join(p["text"] for p in article["paragraphs"]), encoding="utf-8")
        for q in asked:
            paragraph = folder / "paragraph.txt"
            paragraph.write_text(q.paragraph, encoding="utf-8")
            found, alone = ask(session, file, q.words), ask(whole, paragraph, q.words)
            ranks = [i for i, p in enumerate(found["passages"], 1) if within(p, q.start, q.end)]
            outcome = Outcome(
                rank=ranks[0] if ranks else 0,
                right=contains(found["answer"], q.answers),
                right_with_quotations=any(contains(text, q.answers) for text in shown(found)),
                right_alone=contains(alone["answer"], q.answers),
                cited=any(q.start <= c["start"] and c["end"] <= q.end for c in found["citations"]),
                unanswered=found["stopped"] == "unanswered",
                repeated=found["stopped"] == "repeated",
                reused=(found["ranking"] or found["tokens"])["reused"],
            )
            print(json.dumps({"question": q.words, "answer": found["answer"], **vars(outcome)}), flush=True)
            yield outcome


def ask(session: Session, file: Path, question: str) -> dict[str, Any]:
    """The report of one answer."""
    *_, done = session.stream(question, [str(file)])
    assert isinstance(done, Done)
    return done.report.to_json()


def shown(report: dict[str, Any]) -> list[str]:
    """The answer and its quotations."""
    return [report["answer"], *(c["quote"] for c in report["citations"])]


def within(passage: dict[str, Any], start: int, end: int) -> bool:
    """Return True if a passage contains more than half of the paragraph."""
    return 2 * (min(passage["end"], end) - max(passage["start"], start)) > end - start


def contains(answer: str, right: list[str]) -> bool:
    """Return True if the answer contains a correct one, ignoring articles, case and punctuation as SQuAD does."""
    return any(f" {plain(r)} " in f" {plain(answer)} " for r in right)


def token_f1(answer: str, right: str) -> float:
    """Return SQuAD's F1 of the words of an answer and of a right one."""
    found, wanted = plain(answer).split(), plain(right).split()
    same = sum((Counter(found) & Counter(wanted)).values())
    return 2 * same / (len(found) + len(wanted)) if same else 0.0


def plain(text: str) -> str:
    """Return the words of a text, without articles and punctuation."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


if __name__ == "__main__":
    main()
