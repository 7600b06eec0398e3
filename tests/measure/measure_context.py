"""The effective context of a model on SQuAD questions: ``python measure_context.py [squad.json] [--model M]``.

Articles are cut to each of --lengths, in tokens. 24 questions about the remaining text are asked about the whole of it
and about passages, as ``localctx quality --context`` does with questions it makes itself. Deterministic.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from measure_answers import contains
from measure_retrieval import DATA

from localctx.engine.model_loader import ModelLoader
from localctx.quality.context_quality import Haystack, Question, compare_lengths, effective_context
from localctx.session import Session
from localctx.settings import load_settings

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
    loader, settings = ModelLoader(), load_settings(model=given.model, max_tokens=48)
    with tempfile.TemporaryDirectory() as folder:
        home, text = Path(folder), Path(folder) / "text.txt"
        (home / "models").symlink_to(settings.models)
        settings = replace(settings, home=home)
        sessions = {mode: Session(replace(settings, mode=mode), loader=loader) for mode in ("full", "retrieve")}

        def ask(said: str, question: str, mode: str) -> str:
            text.write_text(said, encoding="utf-8")
            return sessions[mode].ask(question, [str(text)]).text

        compared = []
        articles = json.loads(given.file.read_text())[: given.articles]
        pieces = list(cut(articles, given.lengths, sessions["full"].model.tokenizer))
        for one in compare_lengths(pieces, ask):
            compared.append(one)
            print(f"{one.length:,} tokens: {one.whole} of {one.asked} whole, {one.passages} from passages", flush=True)
        print(f"effective context: {effective_context(compared):,} tokens")


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
