"""Retrieval: answering from passages. Words and vectors find them, the model's own likelihood of the question ranks
them, and the best are what is read; every passage's pages are kept, so that ranking again costs the question's tokens.
"""

import re
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from localctx.engine.blending import Blending, blend, choose_blending
from localctx.engine.blending import CachedPassage as Alone
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Note, Planned, Progress
from localctx.engine.prompt import NO_CONVERSATION, Conversation, estimate_tokens
from localctx.engine.request import Begun, Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import rank, read, shut
from localctx.errors import NothingFound
from localctx.library.language import language_warnings
from localctx.library.search import Passage, index_all, join_adjacent, search, try_with_embedder
from localctx.models.catalog import load_catalog
from localctx.models.embedder import Embedder, load_embedder
from localctx.settings import Settings
from localctx.store.documents import StoredDocument
from localctx.store.store import Store, read_store, store_errors
from localctx.workflows.close_reading import lift, reads_closely, without_question

RANKED = 5  # passages whose likelihood is asked
OF_SEARCH = 20  # nats that a score of search counts for: between the first passage and the fifth lie about two
_WHOLE = r"summari[sz]e|summary|overview|list (all|every|each|the)|overall|main (points?|ideas?|themes?)|throughout"
_OF_THE_WHOLE = re.compile(rf"\b({_WHOLE})\b", re.IGNORECASE)
_OVER_ALL = re.compile(rf"\b({_WHOLE}|how (many|often)|(all|every|each) of|in total)\b", re.IGNORECASE)


class RetrievalWorkflow:
    """Finds passages and opens work on them. ``progress`` hears of the embedder, of indexing and of embedding."""

    def __init__(
        self,
        opener: RequestBuilder,
        settings: Settings,
        open_store: Callable[[], Store],
        progress: Callable[[Progress], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self._opener, self._settings, self._open_store = opener, settings, open_store
        self._progress, self._cancelled = progress, cancelled
        self._doubt: str | None = None

    def begin(
        self,
        documents: Sequence[StoredDocument] | None,
        question: str,
        keep: bool,
        why: str,
        of: Conversation = NO_CONVERSATION,
    ) -> EngineCoroutine[Begun]:
        """The work of answering from the best passages of ``documents`` (None: of the whole library), read.

        In a chat, what was said before stands between passages and question, and has no part in the ranking.
        Raises UserError, Cancelled.
        """
        with self._shelf(keep) as store:
            return (yield from self._begin(store, documents, question, keep, why, of))

    def _begin(
        self,
        store: Store,
        documents: Sequence[StoredDocument] | None,
        question: str,
        keep: bool,
        why: str,
        of: Conversation,
    ) -> EngineCoroutine[Begun]:
        start = time.perf_counter()
        with store_errors(store.home):
            if documents is not None and not of.chat:  # a chat's were entered with it
                for row, text, spans in documents:
                    store.documents.add(row, text, spans)
            passages, held = self._find(store, documents, question, why)
        searched = time.perf_counter() - start
        plain = [replace(p, text=without_question(p.text, question)) for p in passages]
        works = [self._open([held[p.document]], [p], question, keep) for p in plain]
        yield from map(Note, language_warnings(self._settings, list(held.values())))
        if self._doubt:
            yield Note(self._doubt)
        if _OVER_ALL.search(question):
            yield Note(
                "this may ask about the whole, but passages are read, not the documents: --mode full reads them, where "
                "they fit the model's window"
            )
        yield self._plan(works, why)
        start = time.perf_counter()
        begun = yield from self._best(store, works, passages, held, question, keep, of)
        begun.work.started -= searched
        begun.work.seconds |= {"search": searched, "rank": time.perf_counter() - start}
        return begun

    def prepared(self, document: StoredDocument) -> dict[str, Any]:
        """Make a document searchable; what ``prepare --json`` prints of it. Raises Cancelled."""
        start, (row, text, spans) = time.perf_counter(), document
        store = self._open_store()
        with store_errors(store.home):
            store.documents.add(row, text, spans)
            try_with_embedder(lambda: self._embedder, lambda embedder: self._index(store, embedder, [row.id]))
        tokens = estimate_tokens(self._opener.model.tokenizer, [text], 0)
        return {
            "document": row.id,
            "name": row.name,
            "model": self._settings.model,
            "stopped": "eos",
            "tokens": {"prompt": tokens, "reused": 0, "prefilled": 0},
            "kept": {"pages": 0, "tokens": 0, "bytes": 0},
            "seconds": {"search": round(time.perf_counter() - start, 4), "prefill": 0.0},
            "kv": {},
        }

    @property
    def count(self) -> int:
        """Passages answered from: as set, or as many as the model was measured to bear; one until it is measured."""
        entry = load_catalog().get(self._settings.model)
        return self._settings.passages or (entry.passages if entry else 0) or 1

    @cached_property
    def _embedder(self) -> Embedder | None:
        s = self._settings
        return load_embedder(s.embedder, s.models, lambda *p: self._progress(Progress(*p)))

    @contextmanager
    def _shelf(self, keep: bool) -> Iterator[Store]:
        """The store, or one that is gone afterwards."""
        if keep:
            yield self._open_store()
            return
        with tempfile.TemporaryDirectory() as home, closing(Store(Path(home))) as store:
            yield store

    def _find(
        self, store: Store, documents: Sequence[StoredDocument] | None, question: str, why: str
    ) -> tuple[list[Passage], dict[str, StoredDocument]]:
        ids = None if documents is None else [row.id for row, _, _ in documents]
        rows = {d.id: d for d in store.documents.all() if (d.id in ids if ids is not None else not d.superseded)}

        def find(embedder: Embedder | None) -> list[Passage]:
            self._index(store, embedder, rows)
            return search(store, question, embedder, list(rows), max(RANKED, self.count)).passages

        found, self._doubt = try_with_embedder(lambda: self._embedder, find)
        if not found:
            raise NothingFound(f"{why}, and nothing in the documents is like the question", "say it in other words")
        spans_of, text_of = store.documents.spans, store.documents.text
        return found, {d: StoredDocument(rows[d], text_of(d), spans_of(d)) for d in {p.document for p in found}}

    def _index(self, store: Store, embedder: Embedder | None, documents: Container[str]) -> None:
        index_all(store, embedder, documents, lambda *p: self._progress(Progress(*p)), self._cancelled)

    def _open(
        self,
        held: Sequence[StoredDocument],
        passages: Sequence[Passage],
        question: str,
        keep: bool,
        of: Conversation = NO_CONVERSATION,
    ) -> Request:
        part = "+".join(f"{p.document}:{p.start}-{p.end}" for p in passages)
        return self._opener.open(held, [p.text for p in passages], question, keep=keep, part=part, of=of)

    def _plan(self, works: Sequence[Request], why: str) -> Planned:
        """One plan for all that is ranked."""
        plans = [w.plan for w in works]
        seconds = [p.seconds for p in plans if p.seconds is not None]
        return replace(
            plans[0],
            mode="retrieve",
            reason=f"{why}: the answer comes from the best {self.count} of {len(works)} passages found",
            tokens=sum(p.tokens for p in plans),
            reused=sum(p.reused for p in plans),
            kv_bytes=sum(p.kv_bytes for p in plans),
            seconds=sum(seconds) if len(seconds) == len(plans) else None,
            unusual=True,
        )

    def _best(
        self,
        store: Store,
        works: Sequence[Request],
        passages: Sequence[Passage],
        held: dict[str, StoredDocument],
        question: str,
        keep: bool,
        of: Conversation,
    ) -> EngineCoroutine[Begun]:
        likely, ends = list[float](), list[Tensor]()
        left = list(works)
        try:
            for i, work in enumerate(works):
                self._progress(Progress("ranking passages", i, len(works)))
                work.enter()
                score, end = yield from rank(work)
                likely.append(score)
                ends.append(end)
            order = sorted(range(len(works)), key=lambda i: -likely[i] - OF_SEARCH * passages[i].score)
            listed = [{**asdict(p), "likelihood": round(n, 3)} for p, n in zip(passages, likely, strict=True)]
            best = order[: self.count]
            if len(best) == 1 and not of.chat:
                begun = Begun(left.pop(best[0]), ends[best[0]], [passages[best[0]]])
            else:
                chosen = sorted(((passages[i], works[i]) for i in best), key=lambda c: (c[0].document, c[0].start))
                begun = yield from self._several(store, chosen, held, question, keep, of)
        finally:
            for work in left:
                shut(work)
        begun.work.passages, begun.work.ranked = [listed[i] for i in order], works
        begun.work.plan = replace(begun.work.plan, mode="retrieve")
        if _OF_THE_WHOLE.search(question):
            return begun
        if self._settings.careful != "off" and not of.history:  # what goes on from before may be a word or two
            begun = begun._replace(answerable=(yield from lift(self._opener, question, max(likely))))
        closely = len(best) == 1 and reads_closely(self._opener.model, self._settings)
        return begun._replace(closely=closely)

    def _several(
        self,
        store: Store,
        chosen: Sequence[tuple[Passage, Request]],
        held: dict[str, StoredDocument],
        question: str,
        keep: bool,
        of: Conversation,
    ) -> EngineCoroutine[Begun]:
        """Several passages in one prompt, in the order of the text: the same ones are then the same prompt.

        Neighbours are one, unless what was ranked is blended.
        """
        model, passages = self._opener.model, [p for p, _ in chosen]
        blending = choose_blending(self._settings.blend, self._verdict)
        if not blending:
            passages = sorted(join_adjacent(store, passages), key=lambda p: (p.document, p.start))
        documents = [held[d] for d in dict.fromkeys(p.document for p in passages)]
        work = self._open(documents, passages, question, keep, of)
        try:
            work.enter()
            if blending:
                alone = [Alone(w.tokens, w.cache) for _, w in chosen]
                reused = yield from blend(model, work.cache, work.tokens, alone, blending, chunk=work.relief)
                work.plan = replace(work.plan, reused=reused)
            logits = yield from read(work)
        except BaseException:
            shut(work)
            raise
        return Begun(work, logits, passages)

    def _verdict(self, blending: Blending) -> bool | None:
        """Whether ``localctx quality --blend`` found it good enough for the model and codec in use."""
        key = blending.key(self._opener.fingerprint)
        return read_store(self._settings.home, self._open_store, lambda store: store.verdicts.passed(key))
