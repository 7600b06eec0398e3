"""Answers about our own documents: ``python tests/measure/measure_own_documents.py [--model FOLDER] [NAME=VALUE ...]``.

A contract, a lease, a manual and two reports in four languages (tests/measure/own_documents) are asked through the
Python API, in a data folder of its own, or in that of --home. Prints, for each document: the answerable questions that
were answered rightly, and those that were refused; the unanswerable ones that were told so; the median seconds of a
question after the first, and the first's; and the share of the later ones' prompts that was reused. Then each wrong
answer, and the citations of under five words (Chinese: characters) for answers to yes/no questions: there must be none.
Settings come from the environment (LOCALCTX_WEIGHTS=int4) or as NAME=VALUE. With --out, an interrupted run goes on.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import harness  # noqa: F401
from own_answers import OwnQuestion, has_expected, is_right, load_questions, polarity, says_nothing, tokens

import localctx
from localctx.results import Answer
from localctx.session import Session
from localctx.settings import load_settings, variable

SHORT = 5  # words that a citation has at least
HEADS = ("", "right", "refused", "told", "seconds", "first", "reused")


@dataclass(frozen=True)
class OwnOutcome:
    """What came of one question: its answer, the verdicts on it, its citations of under SHORT words, and its costs.

    ``refused``: it was said that the document does not say. ``condition``: the answer has expected words, not only a
    right yes or no. ``seconds`` by the clock, ``prompt`` and ``reused`` in tokens.
    """

    id: str
    document: str
    question: str
    answerable: bool
    yes_no: bool
    answer: str
    stopped: str
    mode: str
    right: bool
    refused: bool
    condition: bool
    short: Sequence[str]
    seconds: float
    prompt: int
    reused: int


def main() -> None:
    """Print the table, then what was wrong."""
    given = arguments()
    os.environ.update({variable(name): value for name, value in (s.split("=", 1) for s in given.settings)})
    named = {name: getattr(given, name) for name in ("model", "mode", "adapter", "weights")}
    asked, languages = load_questions()
    asked = [one for one in asked if given.only in one.id]
    outcomes = known(given.out)
    asked = [one for one in asked if one.id not in {o.id for o in outcomes}]
    if asked:
        with data_folder(given.home) as home, localctx.open(home=home, **named) as docs:
            outcomes += measure(docs, asked, given.out)
    results = {name: figures(part) for name, part in parts(outcomes, languages)}
    if given.json:
        print(
            json.dumps({"documents": results, "questions": [asdict(o) for o in outcomes]}, indent=2, ensure_ascii=False)
        )
    else:
        report(results, outcomes)


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a name or a folder")
    parser.add_argument("--mode", help="auto, full or retrieve")
    parser.add_argument("--adapter", help="auto, none or a folder")
    parser.add_argument("--weights", help="what the weights are rounded to")
    parser.add_argument("--only", default="", metavar="WORD", help="questions whose id has it")
    parser.add_argument("--out", type=Path, help="a file of results, one JSON object a line; of the same settings")
    parser.add_argument("--home", type=Path, help="a data folder (a new one, with the models of yours)")
    parser.add_argument("--json", action="store_true", help="print all as JSON")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    return parser.parse_args()


@contextmanager
def data_folder(given: Path | None) -> Iterator[Path]:
    """Yield the data folder that was given, or one that is deleted afterwards."""
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "models").symlink_to(load_settings().models)
        yield Path(folder)


def known(out: Path | None) -> list[OwnOutcome]:
    """Return the outcomes of an interrupted run."""
    lines = out.read_text(encoding="utf-8").splitlines() if out and out.exists() else []
    return [OwnOutcome(**json.loads(line)) for line in lines]


def measure(docs: Session, asked: Sequence[OwnQuestion], out: Path | None) -> Iterator[OwnOutcome]:
    """Ask each question about its document; yield what came of it, add it to ``out``, and print a dot."""
    docs.model  # noqa: B018 (loaded before the first question)
    for question in asked:
        start = time.perf_counter()
        answer = docs.ask(question.question, [str(question.file)])
        outcome = judge(question, answer, time.perf_counter() - start)
        if out:
            with out.open("a", encoding="utf-8") as file:
                print(json.dumps(asdict(outcome), ensure_ascii=False), file=file)
        print(".", end="", file=sys.stderr, flush=True)
        yield outcome
    print(file=sys.stderr)


def judge(question: OwnQuestion, answer: Answer, seconds: float) -> OwnOutcome:
    """Return the verdicts on an answer."""
    refused = answer.stopped == "unanswered" or says_nothing(answer.text)
    is_yes_no = bool(question.yes_no or polarity(answer.text))
    return OwnOutcome(
        id=question.id,
        document=question.document,
        question=question.question,
        answerable=bool(question.expected),
        yes_no=is_yes_no,
        answer=answer.text,
        stopped=answer.stopped,
        mode=answer.mode,
        right=not refused and is_right(question, answer.text),
        refused=refused,
        condition=not refused and has_expected(question, answer.text),
        short=[c.quote for c in answer.citations if is_yes_no and not refused and len(tokens(c.quote)) < SHORT],
        seconds=round(seconds, 3),
        prompt=answer.stats.prompt,
        reused=answer.stats.reused,
    )


def parts(outcomes: Sequence[OwnOutcome], names: dict[str, str]) -> Iterator[tuple[str, Sequence[OwnOutcome]]]:
    """Yield the outcomes of each document, then all."""
    for name, language in names.items():
        if part := [o for o in outcomes if o.document == name]:
            yield f"{name} ({language})", part
    yield "all", outcomes


def figures(part: Sequence[OwnOutcome]) -> dict[str, Any]:
    """Return the counts, the seconds and the share of tokens reused, of the questions after each document's first."""
    firsts = {o.document: o for o in reversed(part)}
    later = [o for o in part if o is not firsts[o.document]] or part
    answerable, others = [o for o in part if o.answerable], [o for o in part if not o.answerable]
    yes_no = [o for o in answerable if o.yes_no]
    return {
        "answerable": len(answerable),
        "right": sum(o.right for o in answerable),
        "refused": sum(o.refused for o in answerable),
        "unanswerable": len(others),
        "told": sum(o.refused for o in others),
        "yes_no": len(yes_no),
        "yes_no_with_condition": sum(o.right and o.condition for o in yes_no),
        "short_citations": sum(len(o.short) for o in part),
        "seconds": median(o.seconds for o in later),
        "first_seconds": max(o.seconds for o in firsts.values()),
        "reused": sum(o.reused for o in later) / max(1, sum(o.prompt for o in later)),
    }


def report(results: dict[str, dict[str, Any]], outcomes: Sequence[OwnOutcome]) -> None:
    """Print the table, the wrong answers and the citations that are too short."""
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for name, r in results.items():
        counts = f"{r['right']} of {r['answerable']} | {r['refused']} | {r['told']} of {r['unanswerable']}"
        print(f"| {name} | {counts} | {r['seconds']:.2f} | {r['first_seconds']:.1f} | {r['reused']:.3f} |")
    total = results["all"]
    print(f"right: {share(total, 'right', 'answerable')}, told: {share(total, 'told', 'unanswerable')}")
    print(f"yes/no answers: {total['yes_no']}, right with a condition: {total['yes_no_with_condition']}")
    print(f"citations of under {SHORT} words for yes/no answers: {total['short_citations']}")
    for o in outcomes:
        if not (o.right if o.answerable else o.refused):
            kind = "refused" if o.refused else "wrong" if o.answerable else "not told"
            print(f"{kind}: {o.id} | {o.question} | {' '.join(o.answer.split())} ({o.mode}, {o.stopped})")
        for quote in o.short:
            print(f"short citation: {o.id} | {quote}")


def share(total: dict[str, Any], what: str, of: str) -> str:
    """Return a share with three decimals."""
    return f"{total[what] / total[of]:.3f}" if total[of] else "none asked"


if __name__ == "__main__":
    main()
