"""Defines the case: an opened request with its question and settings, and the conditions that strategies test on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localctx.document_parts import Citation
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.kv.cache import Cache
from localctx.kv.sequence_cache import SequenceCache
from localctx.settings import Settings
from localctx.workflows.answer.question_kind import asks_of_the_whole, is_instruction


@dataclass(frozen=True)
class AnswerCase:
    """A case: an opened ``request``, to answer ``question`` under ``settings``.

    ``cited`` are the citations of the beginning of a continued answer.
    """

    builder: RequestBuilder
    request: Request
    question: str
    settings: Settings
    cited: Sequence[Citation] = ()

    def asks_every_passage(self) -> bool:
        """Returns True if every passage is asked separately."""
        return self.request.result.everywhere is not None

    def computes_over_table(self) -> bool:
        """Returns True if the answer is computed over a table."""
        return self.request.plan.mode == "table"

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
        """Returns True if the question may be shown only a part of the documents' pages.

        That is so if the documents were read whole but are longer than what the model uses at once, and the question is
        about parts of them.
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
        """Returns True if a run of a document's words can be the answer: the text is a question, not an instruction."""
        return not is_instruction(self.question)

    def quotes(self) -> bool:
        """Returns True if the answer is to be made of the documents' words: the setting says so, or was measured so.

        With ``auto``, quoting must be measured to be better for the adapter.
        """
        chosen, adapter = self.settings.answers, self.request.adapter
        if chosen == "auto":
            return adapter is not None and adapter.measured.get("answers") == "quote"
        return chosen == "quote"

    def may_abstain(self) -> bool:
        """Returns True if the answer may say that nothing answers the question.

        It may not for a question that follows others: that may be only a word or two, which is too little to judge.
        """
        return self.settings.careful != "off" and not self.request.continues

    def wants_confidence(self) -> bool:
        """Returns True if the answer gets a confidence: the adapter was trained to say when a text does not answer."""
        return bool(self.request.adapter) and self.is_greedy() and self.may_abstain()

    def compares_likelihoods(self) -> bool:
        """Returns True if the passages must make the question likelier for an answer to be given.

        That is so if no confidence is wanted. A question about the whole is excepted, as no passage answers it.
        """
        compares = self.reads_passages() and self.may_abstain() and not self.wants_confidence()
        return compares and not asks_of_the_whole(self.question)


def _shows_all_pages(cache: SequenceCache) -> bool:
    """Returns True if a cache consists of our pages, none of them was evicted, and it has no recurrent states."""
    return isinstance(cache, Cache) and cache.keeper.name == "full" and not cache.pool.shape.states


Condition = Callable[[AnswerCase], bool]
