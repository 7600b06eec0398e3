"""The effective context of a model on SQuAD questions: ``python measure_context.py [squad.json] [--model M]``.

Articles are cut to each of --lengths, in tokens. 24 questions about the remaining text are asked about the whole of it
and about passages, as ``localctx quality --context`` does with questions it makes itself; with a reader, also about the
whole text while seeing only the pages of its best passages (focused). Deterministic.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from measure_answers import contains
from measure_retrieval import DATA

from localctx.engine.model_loader import ModelLoader
from localctx.models.adapter_folders import find_adapter
from localctx.quality.context_quality import Haystack, LengthResult, Question, effective_context
from localctx.session import Session
from localctx.settings import Settings, load_settings

LENGTHS = (256, 512, 1024, 2048, 4096)
EACH = 24  # questions at a length


class Asked(Question):
    """A question whose answer is compared as SQuAD compares."""

    def answered_by(self, answer: str) -> bool:
        return contains(answer, list(self.expected))


def main() -> None:
    """Print a line for each length, then the effective context."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=DATA)
    parser.add_argument("--model", help="as localctx takes it")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="in tokens (256 to 4,096)")
    parser.add_argument("--articles", type=int, default=EACH, help="the questions are of so many (24)")
    given = parser.parse_args()
    if not given.file.exists():
        sys.exit(f"{given.file} is absent: nothing to measure")
    settings = load_settings(model=given.model, max_tokens=48)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        home = Path(folder)
        (home / "models").symlink_to(settings.models)
        sessions = open_sessions(replace(settings, home=home), home, opened)
        articles = json.loads(given.file.read_text())[: given.articles]
        pieces = list(cut(articles, given.lengths, sessions["whole"].model.tokenizer))
        compared = list(compare(pieces, sessions, home / "text.txt"))
    print(f"effective context: {effective_context(compared):,} tokens")


def open_sessions(settings: Settings, folder: Path, opened: ExitStack) -> dict[str, Session]:
    """Open a session for each way to read: whole, focused (where the model has a reader), from passages."""
    loader = ModelLoader()
    ways = {"whole": replace(settings, mode="full"), "passages": replace(settings, mode="retrieve")}
    sessions = {way: opened.enter_context(Session(way_settings, loader=loader)) for way, way_settings in ways.items()}
    if reader := find_adapter(settings.adapter, sessions["whole"].settings.model):
        focused = replace(settings, adapter=str(focused_reader(reader, folder / "reader")))
        sessions["focused"] = opened.enter_context(Session(focused, loader=loader))
    return sessions


def focused_reader(reader: Path, copy: Path) -> Path:
    """Copy a reader that focuses on passages in every text, whatever its length."""
    shutil.copytree(reader, copy)
    measured = json.loads((copy / "reader.json").read_text())
    (copy / "reader.json").write_text(json.dumps({**measured, "effective": 1, "focused": 1_000_000}))
    return copy


def compare(pieces: Sequence[Haystack], sessions: dict[str, Session], text: Path) -> Iterator[LengthResult]:
    """Ask every question in every way; prints and yields a result for each length."""
    for length in sorted({piece.length for piece in pieces}):
        right, asked, start = Counter[str](), 0, time.perf_counter()
        for piece in pieces:
            for question in piece.questions if piece.length == length else ():
                text.write_text(piece.text, encoding="utf-8")
                asked += 1
                for way, session in sessions.items():
                    right[way] += question.answered_by(session.ask(question.words, [str(text)]).text)
        told = ", ".join(f"{right[way]} {way}" for way in sessions)
        print(f"{length:,} tokens: of {asked} questions {told} ({time.perf_counter() - start:.0f} s)", flush=True)
        yield LengthResult(length, asked, right["whole"], right["passages"])


def cut(articles: list[dict], lengths: Sequence[int], tokenizer) -> Iterator[Haystack]:
    """Yield the first paragraphs of articles, up to each length in tokens, with the questions about them."""
    for length in lengths:
        share = max(1, EACH // len(articles))
        for article in articles[: EACH // share]:
            kept, used = [], 0
            for paragraph in article["paragraphs"]:
                used += len(tokenizer.encode(paragraph["text"]))
                if used > length:
                    break
                kept.append(paragraph)
            asked = [q for p in kept for q in p["questions"]][:: max(1, len(kept))][-share:]
            questions = [Asked(q["question"], tuple(q["answers"])) for q in asked]
            if questions:
                yield Haystack(length, "\n\n".join(p["text"] for p in kept), questions)


if __name__ == "__main__":
    main()
