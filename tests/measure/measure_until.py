"""Stories as read so far, against files cut there: ``python measure_until.py [stories.json] [--stories 20]``.

Each story's pages are kept once. Then a question is asked at the end of each of its sections, with ``until``, and of a
file that ends there. Prints per story how many sections had logits equal to the bit, the largest difference of a logit,
the tokens reused, and the citations that lie beyond the mark (both ways of answering). The data is
``[{title, paragraphs: [{text}]}]``, as FairytaleQA in measure_answers.py's form.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import harness  # noqa: F401
import torch
from promises import Logits, Recorder

from localctx.engine.coroutine import drive
from localctx.engine.events import Done
from localctx.errors import NothingFound
from localctx.library.reading_mark import find_mark
from localctx.session import Session
from localctx.settings import load_settings
from localctx.workflows.read_until import read_until

DATA = Path(__file__).resolve().parents[3] / "shared/data/reader/fairytale-val.json"
QUESTION = "What happened last?"
ANSWER = 8  # tokens
HOW = {
    "embedder": "none",
    "answers": "free",
    "careful": "off",
    "repeats": "allow",
    "draft": 0,
    "max_tokens": ANSWER,
    "chunk": 64,
}


@dataclass(frozen=True)
class Outcome:
    """One section: whether all logits were equal, the largest difference, tokens reused, citations beyond the mark."""

    equal: bool
    difference: float
    reused: float
    beyond: int


def main() -> None:
    """Print a line for each story, then all together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=DATA)
    parser.add_argument("--stories", type=int, default=20)
    parser.add_argument("--sections", type=int, default=0, help="of each story, evenly spread (0: all)")
    parser.add_argument("--model", default=None)
    parser.add_argument("--dtype", default="f32")
    given = parser.parse_args()
    if not given.file.exists():
        sys.exit(f"{given.file} is absent: nothing to measure")
    outcomes = list[Outcome]()
    for story in json.loads(given.file.read_text())[: given.stories]:
        of_story = list(measure(story, given))
        outcomes += of_story
        print(f"{story['title'][:40]:42}{line(of_story)}", flush=True)
    print(f"{'all':42}{line(outcomes)}")


def line(outcomes: list[Outcome]) -> str:
    """Return the figures of some sections."""
    equal, n = sum(o.equal for o in outcomes), len(outcomes)
    largest, reused = max(o.difference for o in outcomes), sum(o.reused for o in outcomes) / n
    beyond = sum(o.beyond for o in outcomes)
    return f"{equal} of {n} to the bit, largest difference {largest:.2g}, {reused:.0%} reused, {beyond} beyond the mark"


def measure(story: dict, given: argparse.Namespace) -> Iterator[Outcome]:
    """Measure the sections of one story, in a data folder of its own."""
    settings = load_settings(**HOW, dtype=given.dtype, kv="f32", mode="full")
    settings = replace(settings, model=given.model or settings.model)
    with tempfile.TemporaryDirectory() as folder:
        home, text = Path(folder), "\n\n".join(p["text"].strip() for p in story["paragraphs"])
        (home / "models").symlink_to(settings.models)
        file, cut = home / "story.txt", home / "cut.txt"
        file.write_text(text)
        with Session(replace(settings, home=home)) as s:
            list(s.prepare(str(file)))
            for section in chosen(story["paragraphs"], given.sections):
                yield measure_section(s, file, cut, section["text"].strip(), text[-300:])


def chosen(sections: list, number: int) -> list:
    """Return ``number`` of the sections, evenly spread, or all (0)."""
    return sections[:: max(1, len(sections) // number)][:number] if number else sections


def measure_section(s: Session, file: Path, cut: Path, section: str, end: str) -> Outcome:
    """Ask at the end of a section, of the story and of a file that ends there; then, from passages, what is told at
    the ``end`` of the story.
    """
    mark = f'"{section}"'
    document = s.workflows.read(str(file))
    beginning, until = read_until(s.model.tokenizer, [document], mark)
    assert until.characters <= find_mark(document, mark)
    cut.write_text(beginning.text)
    (of_file, _), (so_far, done) = ask(s, cut, "", False), ask(s, file, mark, True)
    shared = of_file.keys() & so_far.keys()
    worst = max(float((of_file[at] - so_far[at]).abs().max()) for at in shared)
    equal = max(of_file) == max(so_far) and all(torch.equal(of_file[at], so_far[at]) for at in shared)
    whole = done.report
    reports = [whole.to_json(), *from_passages(s, file, end, mark)]
    places = [place for report in reports for place in (*report["citations"], *report["passages"])]
    beyond = sum(place["end"] > until.characters for place in places)
    return Outcome(equal, worst, whole.tokens.reused / whole.tokens.prompt, beyond)


def from_passages(s: Session, file: Path, question: str, mark: str) -> Iterator[dict]:
    """Yield the report of an answer from passages, if any is like the question."""
    settings = s.settings
    s.change(replace(settings, mode="retrieve"))
    with suppress(NothingFound):
        *_, done = s.stream(question, [str(file)], until=mark)
        yield done.report.to_json()
    s.change(settings)


def ask(s: Session, file: Path, until: str, persist: bool) -> tuple[Logits, Done]:
    """Return the logits after each position that was computed for the question, and the last event."""
    recorder = Recorder(s)
    asked = s.workflows.questions.ask([str(file)], QUESTION, persist, until=until)
    events = list(drive(asked, lambda feed: recorder([feed])[0]))
    done = events[-1]
    assert isinstance(done, Done)
    return list(recorder.of.values())[-1], done


if __name__ == "__main__":
    main()
