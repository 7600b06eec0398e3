"""Asking: a question's documents are read whole where the model can bear their length, else passages of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from localctx.engine.attribution import attention_by_text
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.effective_context import effective_context
from localctx.engine.events import Note, Quoted
from localctx.engine.prompt import NO_CONVERSATION, Conversation, estimate_tokens
from localctx.engine.quotation import quotation_first
from localctx.engine.request import Begun, Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer, read, say
from localctx.errors import ChatFull, TooLong
from localctx.library.cite import cite_from_attention, cite_passages, cite_range
from localctx.library.language import language_warnings
from localctx.settings import Settings
from localctx.store.documents import StoredDocument
from localctx.workflows.close_reading import answer_twice, invents, rank_sentences, silently
from localctx.workflows.rag import RetrievalWorkflow

UNANSWERED = "None of the passages found answers this question; the words quoted come nearest."


class AskWorkflow:
    """Opens the work on questions under ``settings``, and says what their answers stand on. ``measured`` gives what
    ``localctx quality --context`` found out about the model here, if anything.
    """

    def __init__(
        self,
        opener: RequestBuilder,
        open_retrieval: Callable[[], RetrievalWorkflow],
        settings: Settings,
        measured: Callable[[], dict[str, Any] | None],
        cancelled: Callable[[], bool],
    ) -> None:
        self._opener, self._open_retrieval, self._settings = opener, open_retrieval, settings
        self._measured, self._cancelled = measured, cancelled

    def begin(
        self, documents: Sequence[StoredDocument] | None, question: str, keep: bool, of: Conversation = NO_CONVERSATION
    ) -> EngineCoroutine[Begun]:
        """The work of answering from ``documents``, or from passages of the whole library (None).

        Raises TooLong where the mode forbids passages; ChatFull where either would do without what was said before.
        """
        try:
            return (yield from self._begin(documents, question, keep, of))
        except TooLong as e:
            if not of.history:
                raise
            raise ChatFull(
                f"this chat is full: with what was said before, {e.problem}",
                "go on with --when-full sink-window (only the end is remembered), summarize (what was said becomes one "
                "message) or new (a new chat)",
            ) from e

    def whole(
        self, documents: Sequence[StoredDocument], question: str | None, keep: bool, of: Conversation = NO_CONVERSATION
    ) -> EngineCoroutine[Request]:
        """The work of reading whole documents, and a question where there is one. Raises TooLong."""
        work = self._opener.open(documents, [text for _, text, _ in documents], question, keep=keep, of=of)
        yield from map(Note, (*work.news, *language_warnings(self._settings, documents)))
        yield work.plan
        work.enter()
        return work

    def answer(self, begun: Begun, question: str, settings: Settings) -> EngineCoroutine[None]:
        """Read what is left to be read, and answer: where passages were read, after a quotation of them. In the end the
        work has what the answer stands on. Raises Cancelled, NoRoom; what came stands.
        """
        if not begun.answerable:
            yield from self._unanswered(begun, question)
        elif begun.closely:
            yield from self._closely(begun, question, settings)
        else:
            yield from self._plainly(begun, question, settings)

    def _plainly(self, begun: Begun, question: str, settings: Settings) -> EngineCoroutine[None]:
        work, logits = begun.work, begun.logits
        if logits is None:
            logits = yield from read(work)
        assert logits is not None, "a question is never there before it is read"
        steps = answer(work, logits, self._opener.model.tokenizer, settings)
        yield from quotation_first(steps, lambda: self._quotation(begun, question)) if begun.passages else steps
        self.cite(begun, question)

    def _closely(self, begun: Begun, question: str, settings: Settings) -> EngineCoroutine[None]:
        """The better of two answers from the sentences of the passage that make the question likeliest. Where both have
        names or numbers that the passage does not have, one from the whole passage, if that is better.
        """
        work, (passage,), opener = begun.work, begun.passages, self._opener
        held = next(h for h in work.held if h[0].id == passage.document)
        ranked = yield from rank_sentences(opener, held, passage, question)
        found, sentences = yield from answer_twice(opener, settings, held, passage.text, ranked, question)
        cited = [cite_range(found.texts[0], passage, start, end) for start, end in ranked[:sentences]]
        if invents(found.texts[0], passage.text, question):
            yield from silently(self._plainly(begun, question, settings))
        if not work.said or invents(work.texts[0], passage.text, question):
            work.answers, work.stopped = found.answers, found.stopped
            work.citations = [asdict(citation) for citation in cited]
        yield from map(Quoted, work.citations[:1])
        work.seconds["first_token"] = time.perf_counter() - work.started
        yield from work.answers[0]
        if invents(work.texts[0], passage.text, question):
            yield Note("the answer has a name or a number that the passage does not have: trust the quotation")

    def _unanswered(self, begun: Begun, question: str) -> EngineCoroutine[None]:
        """Say that nothing answers the question, after the words that come nearest."""
        passage = begun.passages[0]
        held = next(h for h in begun.work.held if h[0].id == passage.document)
        (start, end), *_ = yield from rank_sentences(self._opener, held, passage, question)
        begun.work.citations = [asdict(cite_range("", passage, start, end))]
        yield Quoted(begun.work.citations[0])
        begun.work.seconds["first_token"] = time.perf_counter() - begun.work.started
        yield from say(begun.work, UNANSWERED, self._opener.model.tokenizer)
        begun.work.stopped = "unanswered"

    def cite(self, begun: Begun, question: str) -> None:
        """What the answer stands on: sentences of its passages, or of what the model looked at in whole documents."""
        work = begun.work
        if begun.passages:
            found = cite_passages(work.texts[0], question, begun.passages)
        else:
            texts = [text for _, text, _ in work.held]
            seen = attention_by_text(work.cache, self._opener.model.tokenizer, work.tokens[: work.boundary], texts)
            found = cite_from_attention(work.texts[0], question, work.held, seen)
        work.citations = [asdict(citation) for citation in found]

    def _quotation(self, begun: Begun, question: str) -> Quoted | None:
        found = cite_passages(begun.work.texts[0], question, begun.passages)
        return Quoted(asdict(found[0])) if found else None

    def _begin(
        self, documents: Sequence[StoredDocument] | None, question: str, keep: bool, of: Conversation
    ) -> EngineCoroutine[Begun]:
        why = self.why_passages(documents)
        if why is None:
            assert documents is not None
            try:
                return Begun((yield from self.whole(documents, question, keep, of)))
            except TooLong as e:
                if not documents or self._settings.mode == "full" or (of.history and self._fit(documents, question)):
                    raise
                why = e.problem
        return (yield from self._open_retrieval().begin(documents, question, keep, why, of))

    def why_passages(self, documents: Sequence[StoredDocument] | None) -> str | None:
        """Why an answer from ``documents`` comes from passages of them; None where they are read whole, if they fit."""
        mode = self._settings.mode
        if documents is None:
            return "the whole library was asked"
        if mode == "full" or not documents:
            return None
        if mode == "retrieve":
            return "passages were asked for"
        return None if self._settings.keep != "full" else self._more_than_it_bears(documents)

    def _more_than_it_bears(self, documents: Sequence[StoredDocument]) -> str | None:
        model, texts = self._opener.model, [text for _, text, _ in documents]
        bears = effective_context(self._settings, model, self._measured)
        tokens = estimate_tokens(model.tokenizer, texts, bears.tokens, self._cancelled)
        if tokens <= bears.tokens:
            return None
        return f"passages, because {model.name} answers best from up to {bears.words}, and here are about {tokens:,}"

    def _fit(self, documents: Sequence[StoredDocument], question: str) -> bool:
        """Whether the documents can be read whole, with nothing said before."""
        try:
            self._opener.open(documents, [text for _, text, _ in documents], question, keep=False).cache.drop()
        except TooLong:
            return False
        return True
