"""The case that decides how an answer is made, and the conditions of ``answer_strategies`` on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localctx.document_parts import Citation
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.models.catalog import load_catalog
from localctx.settings import Settings
from localctx.workflows.answer.question_kind import asks_of_the_whole, is_instruction


@dataclass(frozen=True)
class AnswerCase:
    """A ``request`` that was opened, for an answer to ``question`` as ``settings`` say. ``cited`` are the citations of
    the beginning of an answer that is continued.
    """

    builder: RequestBuilder
    request: Request
    question: str
    settings: Settings
    cited: Sequence[Citation] = ()

    def asks_every_passage(self) -> bool:
        """True if every passage is asked by itself."""
        return self.request.everywhere is not None

    def continues_answer(self) -> bool:
        """True if the answer goes on where an earlier one was cut or stopped."""
        return bool(self.request.begun)

    def reads_documents(self) -> bool:
        """True if the prompt has documents, or passages of them."""
        return bool(self.request.documents)

    def reads_passages(self) -> bool:
        """True if the prompt has passages, not whole documents."""
        return bool(self.request.passages)

    def is_greedy(self) -> bool:
        """True if one answer is wanted, made of the likeliest tokens."""
        return self.settings.is_greedy

    def may_be_quoted(self) -> bool:
        """True if a run of a document's words can be the answer: something is asked, not instructed."""
        return not is_instruction(self.question)

    def quotes(self) -> bool:
        """True if quoting was chosen or, by ``auto``, measured to be better for the adapter that answers; where none
        does, for the model.
        """
        chosen, adapter = self.settings.answers, self.request.adapter
        if chosen == "auto":
            entry = load_catalog().get(self.settings.model)
            chosen = adapter.measured.get("answers", "free") if adapter else entry.answers if entry else "free"
        return chosen == "quote"

    def may_abstain(self) -> bool:
        """True if it may be said that nothing answers. A question that follows others may be a word or two, from which
        that cannot be told.
        """
        return self.settings.careful != "off" and not self.request.continues

    def wants_confidence(self) -> bool:
        """True if the answer gets a confidence: by an adapter that was trained to say when a text does not answer."""
        return bool(self.request.adapter) and self.is_greedy() and self.may_abstain()

    def compares_likelihoods(self) -> bool:
        """True if passages must make the question likelier: no confidence is wanted, and no passage answers a question
        about the whole.
        """
        compares = self.reads_passages() and self.may_abstain() and not self.wants_confidence()
        return compares and not asks_of_the_whole(self.question)


Condition = Callable[[AnswerCase], bool]
