"""Stores an answer of a chat as a new message, or as the continuation of an earlier answer."""

from dataclasses import dataclass

from localctx.document_parts import Citation, SummaryCitation
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.request import Request
from localctx.engine.run_request import persist_answer
from localctx.engine.runtime import Runtime
from localctx.errors import ChatError, StoreError
from localctx.store.chats import Message
from localctx.store.store import store_errors
from localctx.workflows.chat.asked_sources import AskedSources


@dataclass
class StoreOutcome:
    """The outcome of storing an answer: the id of its message, or the error. It is filled in when the answer is
    stored.
    """

    message: int | None = None
    error: str | None = None


def citations_of(answer: Message | None) -> list[Citation]:
    """Returns the citations of a stored answer ([] for None). The citations of a summary are SummaryCitations, which
    also say where the sentence with the citation is in the summary.
    """
    stored = answer.citations if answer else ()
    return [(SummaryCitation if "at" in c else Citation).from_json(c) for c in stored]


def answer_and_store(
    runtime: Runtime,
    request: Request,
    question: Message,
    asked: AskedSources,
    answering: EngineCoroutine[None],
    stored: StoreOutcome,
    begun: Message | None,
) -> EngineCoroutine[None]:
    """Run ``answering``, and store the generated text as the answer to ``question`` about the sources ``asked``, or as
    the continuation of the answer ``begun``. The text is stored even if ``answering`` is cancelled or the coroutine is
    closed. The id of the message, or the error, is set in ``stored``.
    """
    try:
        yield from answering
    finally:
        try:
            stored.message = _store_answer(runtime, request, question, asked, begun)
        except (StoreError, ChatError) as e:  # or the chat was deleted meanwhile
            stored.error = str(e)


def _store_answer(
    runtime: Runtime, request: Request, question: Message, asked: AskedSources, begun: Message | None
) -> int | None:
    """Store the answer to ``question``, or the continuation of the answer ``begun``, and then the answer's pages.

    Returns the message's id, or None if nothing was generated. Raises StoreError, ChatError.
    """
    chats = runtime.store.chats
    if request.result.stopped == "cancelled" and not any(request.result.answers):
        return begun.id if begun else None
    with store_errors(runtime.store.home):
        stats = request.chat_stats() | asked.stats(begun.stats if begun else None)
        result = (request.text, request.cited, stats, request.result.stopped)
        if begun:
            message = chats.extend(begun.id, *result)
        else:
            message = chats.append(question.chat, question.id, "assistant", *result)
        persist_answer(request, chats.branch_of(message.id), runtime.cancelled)
    return message.id
