"""Defines the case: an opened request with its question and settings, and the conditions that strategies test on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localctx.document_parts import Citation
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.kv.cache import Cache
from localctx.kv.sequence_cache import SequenceCache
from localctx.settings import Settings
from localctx.store.documents import StoredDocument
from localctx.workflows.answer.question_kind import asks_of_the_whole, is_instruction

OpenDocuments = Callable[[Sequence[StoredDocument], str, bool], EngineCoroutine[Request]]
"""Opens a request about documents, for a question; True keeps its pages."""


@dataclass(frozen=True)
class AnswerCase:
    """A case: an opened ``request``, to answer ``question`` under ``settings``.

    ``cited`` are the citations of the beginning of a continued answer. ``open_documents`` opens further requests, where
    an answer is made of several.
    """

    builder: RequestBuilder
    request: Request
    question: str
    settings: Settings
    cited: Sequence[Citation] = ()
    open_documents: OpenDocuments | None = None

    def compares_documents(self) -> bool:
        """Returns True if every document is asked separately, and what they say is compared."""
        return self.request.result.compared is not None

    def asks_every_passage(self) -> bool:
        """Returns True if every passage is asked separately."""
        return self.request.result.everywhere is not None

    def computes_over_table(self) -> bool:
        """Returns True if the answer is computed over a table."""
        return self.request.plan.mode == "table"

    def has_format(self) -> bool:
        """Returns True if the answer must follow a grammar, such as that of a JSON schema."""
        return bool(self.request.controls.grammar)

    def continues_answer(self) -> bool:
        """Returns True if the answer continues one that was cut or stopped."""
        return bool(self.request.prompt.begun)

    def reads_documents(self) -> bool:
        """Returns True if the prompt has documents, or passages of them."""
        return bool(self.request.prompt.documents)

    def reads_passages(self) -> bool:
        """Returns True if the prompt has passages, not whole documents."""
        return bool(self.request.prompt.passages)

    def focuses(self) -> bool:
        """Returns True if the question attends only to the pages that have its best passages, although the documents
        were read whole.

        That is so in the mode ``auto``, for documents of more than ``EffectiveContext.tokens`` tokens, because the
        model was measured to answer well in this way. The question must be about parts of the documents, and the cache
        must have all their pages and no recurrent states.
        """
        request = self.request
        if (
            self.settings.mode != "auto"
            or not request.prompt.documents
            or request.prompt.passages
            or request.result.everywhere
        ):
            return False
        if is_instruction(self.question) or asks_of_the_whole(self.question) or not _shows_all_pages(request.cache):
            return False
        effective = self.builder.runtime.effective_context
        return bool(effective.focused) and request.prompt.boundary > effective.tokens

    def is_greedy(self) -> bool:
        """Returns True if one answer of the likeliest tokens is wanted."""
        return self.settings.is_greedy

    def may_be_quoted(self) -> bool:
        """Returns True if some words of a document can be the answer, because the text is a question and not an
        instruction.
        """
        return not is_instruction(self.question)

    def quotes(self) -> bool:
        """Returns True if the setting ``answers`` asks for an answer that consists of words of the documents.

        If the setting is ``auto``, quoting must have been measured to be better for the adapter.
        """
        chosen, adapter = self.settings.answers, self.request.adapter
        if chosen == "auto":
            return adapter is not None and adapter.measured.get("answers") == "quote"
        return chosen == "quote"

    def may_abstain(self) -> bool:
        """Returns True if the answer may be that the text does not answer the question.

        It may not be if the question follows another one in a chat: such a question may be only a word or two, which is
        too little to judge.
        """
        return self.settings.careful != "off" and not self.request.continues

    def wants_confidence(self) -> bool:
        """Returns True if a confidence is computed for the answer: there is an adapter, which was trained to say when a
        text does not answer.
        """
        return bool(self.request.adapter) and self.is_greedy() and self.may_abstain()

    def compares_likelihoods(self) -> bool:
        """Returns True if an answer is given only if the passages make the question likelier than it is without them.

        That is so if no confidence is computed. Questions about a whole text are excepted, because no single passage
        answers them.
        """
        compares = self.reads_passages() and self.may_abstain() and not self.wants_confidence()
        return compares and not asks_of_the_whole(self.question)


def _shows_all_pages(cache: SequenceCache) -> bool:
    """Returns True if a cache consists of our pages, none of them was evicted, and it has no recurrent states."""
    return isinstance(cache, Cache) and cache.keeper.name == "full" and not cache.pool.shape.states


Condition = Callable[[AnswerCase], bool]
