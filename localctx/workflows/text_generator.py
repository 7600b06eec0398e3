"""Generates text about a document: ``LocalGenerator`` does it with the model loaded on this machine."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Note
from localctx.engine.prompt import Conversation
from localctx.engine.request import Begun, Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer, read, shut
from localctx.errors import Cancelled
from localctx.library.sentences import trim_to_sentence
from localctx.settings import Settings
from localctx.store.documents import StoredDocument
from localctx.workflows.summary_task import AS_IT_IS


def zero_token_counts() -> Counter[str]:
    """Tokens, as a result counts them."""
    return Counter(prompt=0, reused=0, prefilled=0, generated=0, dropped=0)


class TextGenerator(Protocol):
    """Speaks about one document; ``model`` names who does, ``spent`` counts the tokens.

    What cannot be read at once raises TooLong before anything is said of it. Everything raises Cancelled, NoRoom.
    """

    model: str
    spent: Counter[str]

    @property
    def window(self) -> int:
        """The tokens it was made to read at once, as far as that is known."""

    def count(self, text: str) -> int:
        """Tokens of a text, about."""

    def refuse_too_long(self, texts: Sequence[str], instruction: str) -> None:
        """Raises TooLong for texts that could not be read together."""

    def say(self, texts: Sequence[str], instruction: str, most: int) -> EngineCoroutine[str]:
        """What is said of parts of the document, in at most so many tokens."""

    def say_of_all(self, instruction: str, most: int, keep: bool) -> EngineCoroutine[str]:
        """What is said of the whole document; ``keep`` what was read of it, where there is a way to."""

    def answer(self, question: str) -> EngineCoroutine[dict[str, Any]]:
        """``answer`` to a question about the document, ``mode`` (full or retrieve) and ``citations``.

        Raises NothingFound where nothing in it is like the question.
        """


class LocalGenerator:
    """The model of this machine. ``begin`` opens the work on a question about documents, ``answer`` answers it and says
    what the answer stands on.
    """

    def __init__(
        self,
        opener: RequestBuilder,
        settings: Settings,
        held: StoredDocument,
        begin: Callable[[Sequence[StoredDocument], str], EngineCoroutine[Begun]],
        answer: Callable[[Begun, str, Settings], EngineCoroutine[None]],
        cancelled: Callable[[], bool],
    ) -> None:
        self.model, self.spent, self.window = settings.model, zero_token_counts(), opener.model.trained
        # where many answer side by side, a guess takes the place of another's token
        self._opener, self._settings, self._held = opener, replace(settings, draft=0), held
        self._begin, self._answer, self._cancelled = begin, answer, cancelled

    def count(self, text: str) -> int:
        """See ``TextGenerator``. To the token."""
        if self._cancelled():
            raise Cancelled
        return len(self._opener.model.tokenizer.encode(text))

    def refuse_too_long(self, texts: Sequence[str], instruction: str) -> None:
        """See ``TextGenerator``. Memory counts, too."""
        self._open(texts, instruction).cache.drop()

    def say(self, texts: Sequence[str], instruction: str, most: int) -> EngineCoroutine[str]:
        """See ``TextGenerator``. Pages are not kept: each is read once, and they would fill the disk's budget."""
        return (yield from self._say(Begun(_at_most(most, self._open(texts, instruction)))))

    def say_of_all(self, instruction: str, most: int, keep: bool) -> EngineCoroutine[str]:
        """See ``TextGenerator``. Pages that are kept are used. New ones are not kept unless that is wanted: a night's
        documents would push out those that somebody asks.
        """
        work = _at_most(most, self._open([self._held[1]], instruction, keep=True))
        if keep:
            work.enter()
        else:
            work.keeping = None
        return (yield from self._say(Begun(work)))

    def answer(self, question: str) -> EngineCoroutine[dict[str, Any]]:
        """See ``TextGenerator``. As ``ask`` does: of several questions the first reads what the others share."""
        begun = yield from self._begin([self._held], question)
        said = yield from self._told(begun, self._answer(begun, question, self._settings))
        return {"answer": said, "mode": begun.work.plan.mode, "citations": begun.work.citations}

    def _say(self, begun: Begun) -> EngineCoroutine[str]:
        """The answer to an instruction that is opened, which is shut."""

        def steps() -> EngineCoroutine[None]:
            logits = yield from read(begun.work)
            assert logits is not None, "an instruction is never there before it is read"
            yield from answer(begun.work, logits, self._opener.model.tokenizer, self._settings)

        return (yield from self._told(begun, steps()))

    def _told(self, begun: Begun, steps: EngineCoroutine[None]) -> EngineCoroutine[str]:
        """The answer that ``steps`` give to what is opened, which is shut."""
        work = begun.work
        try:
            yield from steps
        finally:
            shut(work)
        dropped = self._count(work)
        yield from map(Note, (*work.notes, *([work.failed] if work.failed else [])))
        if dropped:
            yield Note(f"{work.plan.keeper} dropped {dropped:,} of {len(work.tokens):,} tokens: not all was seen")
        return trim_to_sentence(work.texts[0]) if work.stopped in ("length", "repeated") else work.texts[0]

    def _open(self, texts: Sequence[str], instruction: str, keep: bool = False) -> Request:
        return self._opener.open([self._held], texts, instruction, keep=keep, of=Conversation(form=AS_IT_IS))

    def _count(self, work: Request) -> int:
        """Count what was read and said, also of passages that were ranked; the tokens that were dropped."""
        dropped = round(sum((e.stop - e.start) * (1 - e.kept) for e in work.evicted))
        self.spent.update(generated=sum(map(len, work.answers)), dropped=dropped)
        for one in {id(w): w for w in (*work.ranked, work)}.values():
            self.spent.update(prompt=len(one.tokens), reused=one.plan.reused, prefilled=one.read)
        return dropped


def _at_most(most: int, work: Request) -> Request:
    work.plan = replace(work.plan, answer_tokens=max(1, min(work.plan.answer_tokens, most)))
    return work
