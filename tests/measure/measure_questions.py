"""How many of twenty questions are answered correctly: ``python measure_questions.py [--mode auto] [--json]``.

The questions and expected words are those of twenty_questions.toml, about README.md and about a novel if the data
folder has it. An answer is correct if it, or a quotation shown with it, contains an expected word. Prints each answer,
then how many were correct, how many repeated themselves, and the settings.
"""

import argparse
import json
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from localctx.engine.events import Done
from localctx.session import Session
from localctx.settings import load_settings

HERE = Path(__file__).resolve().parent
DOCUMENTS = {
    "readme": HERE.parents[1] / "README.md",
    "news-from-nowhere": HERE.parents[2] / "shared" / "data" / "news-from-nowhere.txt",
}


def main() -> None:
    """Ask every question whose document exists."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", default="auto", help="auto, full or retrieve")
    parser.add_argument("--json", action="store_true", help="print one object a line")
    given = parser.parse_args()
    asked = tomllib.loads((HERE / "twenty_questions.toml").read_text())
    right, total = 0, 0
    with tempfile.TemporaryDirectory() as home:
        settings = load_settings(mode=given.mode)
        (Path(home) / "models").symlink_to(settings.models)
        with Session(load_settings(home=home, mode=given.mode)) as session:
            for document, questions in asked.items():
                if not DOCUMENTS[document].exists():
                    print(f"{DOCUMENTS[document].name} is absent", file=sys.stderr)
                    continue
                for question, expected in questions.items():
                    report = ask(session, DOCUMENTS[document], question)
                    found = is_right(report, expected)
                    right, total = right + found, total + 1
                    show(document, question, report, found, given.json)
    print(f"right: {right} of {total}")


def ask(session: Session, file: Path, question: str) -> dict[str, Any]:
    """Return the report of one answer."""
    *_, done = session.stream(question, [str(file)])
    assert isinstance(done, Done)
    return done.report.to_json()


def is_right(report: dict[str, Any], expected: list[str]) -> bool:
    """Return True if the answer, or a quotation shown with it, contains an expected word."""
    shown = " ".join([report["answer"], *(c["quote"] for c in report["citations"])])
    return any(word in shown for word in expected)


def show(document: str, question: str, report: dict[str, Any], right: bool, as_json: bool) -> None:
    """Print one question with its answer and quotations."""
    quotes = [c["quote"] for c in report["citations"]]
    if as_json:
        kept = {name: report[name] for name in ("answer", "mode", "stopped", "seconds")}
        print(json.dumps({"document": document, "question": question, "right": right, **kept, "quotes": quotes}))
        return
    print(f"{'right' if right else 'WRONG'}  {question}")
    print(f"       {report['mode']}, {report['stopped']}: {report['answer']!r}")
    print("\n".join(f"       | {quote!r}" for quote in quotes), flush=True)


if __name__ == "__main__":
    main()
