"""How well a model reads: ``python measure_reading.py [--data FOLDER] [--questions 60] [--adapter none] ...``.

Questions are asked about their own paragraph, which is read whole: those of half A of SQuAD's development set, and the
explicit ones of FairytaleQA's validation set, the same in every run. For each set, and for answers in the model's own
words and quoted ones, prints the share of exact answers, of answers that contain a right one, the mean token F1, and
the mean number of words. Settings are given as NAME=VALUE. With --out, lines are added to a file as answers come, and
questions that are in it are not asked again.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure_answers import contains, plain, token_f1

from localctx.engine.events import Done
from localctx.engine.scheduler import Scheduler
from localctx.session import Session
from localctx.settings import load_settings, with_changes

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SETS = {"half A": "squad-dev-A.json", "tales": "reader/fairytale-val.json"}
PARALLEL = 12  # questions side by side
ANSWER = 64  # tokens


@dataclass(frozen=True)
class Asked:
    """A question about ``paragraph`` of an article, and its ``answers``, any of which is right."""

    question: str
    paragraph: str
    answers: Sequence[str]
    article: str

    @property
    def key(self) -> str:
        """What it is found by in the file of results."""
        return f"{self.article} | {self.question}"


def main() -> None:
    """Print the table, or the reason why nothing can be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the data")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--answers", nargs="+", default=["free", "quote"])
    parser.add_argument("--questions", type=int, default=60, help="of each set (60)")
    parser.add_argument("--out", type=Path, help="a file of results, one JSON object a line")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    given = parser.parse_args()
    changes = dict(setting.split("=", 1) for setting in given.settings)
    for name in given.sets:
        if not (given.data / SETS[name]).exists():
            sys.exit(f"{given.data / SETS[name]} is absent: nothing to measure")
        asked = sample(given.data / SETS[name], given.questions)
        for answers in given.answers:
            base = load_settings(mode="full", max_tokens=ANSWER, embedder="none")
            settings = with_changes(base, {**changes, "answers": answers})
            start = time.perf_counter()
            with Session(settings) as session:
                reports = list(answer_all(session, asked, given.out, f"{answers} {' '.join(given.settings)}".strip()))
            print(f"{name}, {answers}: {figures(asked, reports)}, {time.perf_counter() - start:.0f} s", flush=True)


def sample(file: Path, count: int) -> list[Asked]:
    """``count`` questions of a data set, the same in every run; of tales only explicit ones."""
    asked = [
        Asked(question["question"], paragraph["text"], question["answers"], article["title"])
        for article in json.loads(file.read_text(encoding="utf-8"))
        for paragraph in article["paragraphs"]
        for question in paragraph["questions"]
        if question.get("explicit", True)
    ]
    return random.Random(0).sample(asked, min(count, len(asked)))


def answer_all(
    session: Session, asked: Sequence[Asked], out: Path | None, how: str, persist: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the shortened reports of all questions, in order; those found in ``out`` are taken from there."""
    known = {}
    if out and out.exists():
        lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        known = {line["key"]: line for line in lines if line["how"] == how}
    missing = [one for one in asked if one.key not in known]
    for one, report in ask_side_by_side(session, missing, persist):
        known[one.key] = {"key": one.key, "how": how, "right": one.answers, **report}
        if out:
            with out.open("a", encoding="utf-8") as file:
                print(json.dumps(known[one.key]), file=file)
    yield from (known[one.key] for one in asked)


def ask_side_by_side(
    session: Session, asked: Iterable[Asked], persist: bool = False
) -> Iterator[tuple[Asked, dict[str, Any]]]:
    """Yield each question with its report, as answers are complete: several are generated in one forward pass.

    If ``persist``, the texts are kept, and questions are asked one by one, so that each text is read once.
    """
    scheduler, waiting, running = Scheduler(session.forward_each), list(asked)[::-1], {}
    session.model  # noqa: B018 (loaded before the first question)
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < (1 if persist else PARALLEL):
                one = waiting.pop()
                file = Path(folder) / f"{len(waiting)}.txt"
                file.write_text(one.paragraph, encoding="utf-8")
                asking = session.workflows.questions.ask([str(file)], one.question, persist=persist)
                running[scheduler.add(asking)] = one
            for sequence, event in scheduler.step():
                if isinstance(event, Done):
                    yield running[sequence], shortened(event.report.to_json())
            for sequence in [sequence for sequence in running if sequence.ended]:
                del running[sequence]
                with closing(sequence):
                    if sequence.error:
                        raise sequence.error


def shortened(report: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a report."""
    names = ("answer", "stopped", "decoding", "confidence", "withheld", "citations", "seconds")
    return {name: report[name] for name in names if name in report}


def figures(asked: Sequence[Asked], reports: Sequence[dict[str, Any]]) -> str:
    """Return the figures of one set as a line."""
    pairs = [(one.answers, report["answer"]) for one, report in zip(asked, reports, strict=True)]
    exact = mean(any(plain(answer) == plain(r) for r in right) for right, answer in pairs)
    contained = mean(contains(answer, list(right)) for right, answer in pairs)
    f1 = mean(max(token_f1(answer, r) for r in right) for right, answer in pairs)
    words = mean(len(answer.split()) for _, answer in pairs)
    unanswered = sum(report["stopped"] == "unanswered" for report in reports)
    seconds = mean(report["seconds"]["first_token"] + report["seconds"].get("decode", 0) for report in reports)
    share = f"exact {exact:.3f}, contained {contained:.3f}, F1 {f1:.3f} of {len(pairs)}"
    return f"{share}; {words:.1f} words, {unanswered} unanswered, {seconds:.1f} s each"


def mean(values: Iterable[float]) -> float:
    """Return the mean of some values; 0 of none."""
    found = list(values)
    return sum(found) / len(found) if found else 0.0


if __name__ == "__main__":
    main()
