"""How often search finds the right paragraph: ``python measure_retrieval.py [squad.json] [questions]``.

The data is ``[{title, paragraphs: [{text, questions: [{question}]}]}]``. Each article becomes one document. A paragraph
is found when a passage holds more than half of it. Prints recall at 1, 3 and 5 of BM25, vectors, and both fused.
"""

import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from localctx.library.read_document import read_document
from localctx.library.search.indexing import index
from localctx.library.search.search import DEPTH, fuse
from localctx.models.embedder import Embedder, load_embedder
from localctx.settings import load_settings
from localctx.store.search_index import ChunkRow
from localctx.store.store import Store

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "squad-dev-A.json"


@dataclass(frozen=True)
class Question:
    """A question's words, its paragraph's range in the article, and its correct answers."""

    words: str
    paragraph: str
    start: int
    end: int
    answers: list[str]


def main(path: Path = DATA, count: int = 5) -> None:
    """Print the table, or the reason why nothing can be measured."""
    if not path.exists():
        sys.exit(f"{path} is absent: nothing to measure")
    settings = load_settings()
    embedder = load_embedder(settings.embedder, settings.models, lambda *p: None)
    assert embedder, "there is no embedder: nothing to compare"
    with TemporaryDirectory() as folder, closing(Store(Path(folder) / "home")) as store:
        start, questions = time.perf_counter(), add(store, embedder, json.loads(path.read_text()), count, Path(folder))
        print(f"{store.index.coverage(None)[0]} chunks indexed in {time.perf_counter() - start:.0f} s")
        for scope in ("own document", "whole library"):
            report(store, embedder, questions, scope)


def sample(articles: list[dict], count: int) -> Iterator[list[Question]]:
    """``count`` questions of each article, the same in every run. Paragraphs are parted by an empty line."""
    sampled = random.Random(0)
    for article in articles:
        asked, at = [], 0
        for p in article["paragraphs"]:
            end = at + len(p["text"])
            asked += [Question(q["question"], p["text"], at, end, q["answers"]) for q in p["questions"]]
            at = end + 2
        yield sampled.sample(asked, min(count, len(asked)))


def add(store: Store, embedder: Embedder, articles: list[dict], count: int, folder: Path) -> list[tuple[str, Question]]:
    """Index every article; questions with the ids of their documents."""
    questions = []
    for article, asked in zip(articles, sample(articles, count), strict=True):
        texts = [p["text"] for p in article["paragraphs"]]
        file = folder / f"{article['title']}.txt"
        file.write_text("\n\n".join(texts), encoding="utf-8")
        document = read_document(str(file))
        store.documents.add(document.row, document.text, document.spans)
        index(store, document.row, embedder)
        questions += [(document.row.id, q) for q in asked]
    return questions


def report(store: Store, embedder: Embedder, questions: list[tuple[str, Question]], scope: str) -> None:
    """Print recall, searching each question's own document or the whole library."""
    ranks: dict[str, list[int]] = {"BM25": [], "vectors": [], "fused": []}
    for document, q in questions:
        within = [document] if scope == "own document" else None
        by_words = store.index.by_words(q.words, DEPTH, within)
        by_vector = store.index.by_vector(embedder.name, embedder.embed_query(q.words), DEPTH, within)
        scores = fuse({"words": by_words, "vectors": by_vector})
        fused = sorted(scores, key=lambda c: (-scores[c], c))
        for name, ranked in zip(ranks, (by_words, by_vector, fused), strict=True):
            hits = [holds(c, document, q.start, q.end) for c in store.index.get(ranked)]
            ranks[name].append(hits.index(True) + 1 if True in hits else DEPTH * 2)
    print(f"{scope}, {len(questions)} questions: recall at 1, 3, 5")
    for name, found in ranks.items():
        print(f"  {name:8}", *(f"{sum(r <= k for r in found) / len(found):.3f}" for k in (1, 3, 5)))


def holds(chunk: ChunkRow, document: str, start: int, end: int) -> bool:
    """Return True if the chunk contains more than half of the paragraph."""
    return chunk.document == document and 2 * (min(chunk.end, end) - max(chunk.start, start)) > end - start


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), *map(int, sys.argv[2:3]))
