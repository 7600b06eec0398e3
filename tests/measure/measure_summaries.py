"""Summaries against people's: ``python measure_summaries.py [--stories 25] [--tales 10] [--results FILE]``.

Stories of SQuALITY, whose first question asks for the plot, are summarized in several ways: ``base`` (written by the
model alone), ``adapter`` (written with ``--adapter``, if it is given), ``extract`` (their own sentences), ``default``
(what localctx does unasked) and ``first`` (the first 250 words). ROUGE-2 and ROUGE-L (F1, stemmed, rouge-score) are the
best over the people's summaries, as that library's score_multi has it; the means over them are told too. FairytaleQA
has no summaries: of its tales only repeated sentences and coverage are told (tenths of the text that are cited). Each
result is kept in FILE as a line of JSON; an interrupted run goes on.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rouge_score.rouge_scorer import RougeScorer

from localctx.library.wording.repeated_sentences import repeats
from localctx.library.wording.sentences import sentences
from localctx.library.wording.words import split_words
from localctx.results import Summary
from localctx.session import Session
from localctx.settings import Settings, load_settings

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "reader"
FIRST_WORDS = 250
PARTS = 10
FIGURES = ("rouge2", "rougeL", "rouge2_mean", "rougeL_mean", "words", "repeated", "coverage", "seconds")
ALL_WAYS = ("first", "base", "adapter", "extract", "default")


@dataclass(frozen=True)
class Story:
    """A text to summarize, and people's summaries of it, if there are any."""

    name: str
    text: str
    references: Sequence[str]


def main() -> None:
    """Measure what is not in the results yet, then print all figures and some summaries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squality", type=Path, default=DATA / "squality-dev.jsonl")
    parser.add_argument("--fairytales", type=Path, default=DATA / "fairytale-val.json")
    parser.add_argument("--stories", type=int, default=25)
    parser.add_argument("--tales", type=int, default=10)
    parser.add_argument("--ways", default=",".join(ALL_WAYS), help="some of: " + ", ".join(ALL_WAYS))
    parser.add_argument("--adapter", help="for the way adapter, which is left out without")
    parser.add_argument("--model", help="in place of the default one")
    parser.add_argument("--length", default="medium")
    parser.add_argument("--results", type=Path, default=Path("summaries.jsonl"))
    parser.add_argument("--show", type=int, default=3, help="print the default's summaries of so many stories")
    given = parser.parse_args()
    if not (given.squality.exists() and given.fairytales.exists()):
        sys.exit(f"{given.squality} or {given.fairytales} is absent: nothing to measure")
    ways = [way for way in given.ways.split(",") if way != "adapter" or given.adapter]
    stories = [*squality(given.squality)][: given.stories], [*fairytales(given.fairytales)][: given.tales]
    results = read_results(given.results)
    for story in (*stories[0], *stories[1]):
        for way in ways:
            if (story.name, way) not in results:
                found = results[story.name, way] = measure(story, way, given)
                with given.results.open("a") as file:
                    file.write(json.dumps({"story": story.name, "way": way, **found}) + "\n")
                print(f"{story.name[:30]:32}{way:9}{figures([found])}", flush=True)
    for kind, of_kind in zip(("stories", "tales"), stories, strict=True):
        for way in ways:
            if found := [results[story.name, way] for story in of_kind]:
                print(f"{len(of_kind)} {kind:10}{way:9}{figures(found)}")
    for story in stories[0][: given.show]:
        print(f"\n{story.name}\n{results[story.name, 'default' if 'default' in ways else ways[-1]]['summary']}")


def squality(file: Path) -> Iterator[Story]:
    """Yield the stories with people's answers to their first question, which is about the plot."""
    for line in file.read_text().splitlines():
        row = json.loads(line)
        people = [response["response_text"] for response in row["questions"][0]["responses"]]
        yield Story(f"{row['metadata']['passage_id']}", row["document"], people)


def fairytales(file: Path) -> Iterator[Story]:
    """Yield the tales, which nobody summarized."""
    for row in json.loads(file.read_text()):
        yield Story(row["title"], "\n\n".join(section["text"] for section in row["paragraphs"]), ())


def read_results(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what was measured before, by story and way."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {(row["story"], row["way"]): row for row in rows}


def measure(story: Story, way: str, given: argparse.Namespace) -> dict[str, Any]:
    """Summarize a story in one way."""
    began = time.perf_counter()
    if way == "first":
        text, places = " ".join(story.text.split()[:FIRST_WORDS]), [0]
    else:
        summary = summarize(story, settings_of(way, given), given.length)
        text, places = summary.text, [citation.start for citation in summary.citations]
    return {
        **rouge(text, story.references),
        "words": len(text.split()),
        "repeated": repeated(text),
        "coverage": len({place * PARTS // len(story.text) for place in places}) / PARTS,
        "seconds": round(time.perf_counter() - began, 1),
        "summary": text,
    }


def settings_of(way: str, given: argparse.Namespace) -> Settings:
    """Return the settings of a way."""
    s = load_settings()
    s = replace(s, model=given.model or s.model)
    match way:
        case "base":
            return replace(s, summaries="write", adapter="none")
        case "adapter":
            return replace(s, summaries="write", adapter=given.adapter)
        case "extract":
            return replace(s, summaries="extract")
    return s


def summarize(story: Story, settings: Settings, length: str) -> Summary:
    """Summarize in a data folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "models").symlink_to(settings.models)
        file = home / "story.txt"
        file.write_text(story.text)
        with Session(replace(settings, home=home), sources=[str(file)]) as session:
            (summary,) = session.summarize(length=length)
            return summary


def rouge(text: str, references: Sequence[str]) -> dict[str, float]:
    """Return the best ROUGE-2 and ROUGE-L over the references, and the means over them."""
    if not references:
        return {}
    scorer = RougeScorer(["rouge2", "rougeL"], use_stemmer=True)
    best = {name: score.fmeasure for name, score in scorer.score_multi(references, text).items()}
    each = [scorer.score(reference, text) for reference in references]
    means = {f"{name}_mean": statistics.mean(scores[name].fmeasure for scores in each) for name in best}
    return {name: round(value, 5) for name, value in {**best, **means}.items()}


def repeated(text: str) -> int:
    """Return how many sentences repeat an earlier one."""
    said = [split_words(text[start:end]) for start, end in sentences(text, 0, len(text))]
    return sum(any(repeats(words, earlier) for earlier in said[:i]) for i, words in enumerate(said))


def figures(results: Sequence[dict[str, Any]]) -> str:
    """Return the means of the figures, and the number of repeated sentences in all."""
    found = {name: [r[name] for r in results if name in r] for name in FIGURES}
    means = {name: sum(of) if name == "repeated" else statistics.mean(of) for name, of in found.items() if of}
    return "  ".join(f"{name} {value:.4g}" for name, value in means.items())


if __name__ == "__main__":
    main()
