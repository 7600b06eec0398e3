"""Selects the history for the prompt of a chat's next question."""

from collections.abc import Callable, Sequence

from localctx.engine.prompt import Exchange
from localctx.engine.prompt_wording import SUMMARIZE_CHAT
from localctx.errors import ChatError
from localctx.library.wording.small_talk import is_small_talk
from localctx.store.chats import SUMMARY, Chats, Message
from localctx.workflows.chat.asked_sources import AskedSources


def answered(messages: Sequence[Message]) -> list[Message]:
    """Returns the messages of a branch up to its last answer."""
    return list(messages[:-1] if messages and messages[-1].role == "user" else messages)


def last_question(chats: Chats, chat: str, message: int | None = None) -> tuple[list[Message], Message]:
    """Returns (messages before a question, the question).

    The question is ``message``, or the last question of the current branch (None). Raises ChatError if nothing was
    asked.
    """
    messages = chats.messages(chat, message)
    while messages and messages[-1].role != "user":
        messages.pop()
    if not messages:
        raise ChatError("nothing was asked in this chat yet", "ask something first")
    return messages[:-1], messages[-1]


def messages_until(messages: Sequence[Message], end: int) -> list[Message]:
    """Returns only the messages of a branch that depend on no more than the first ``end`` characters of the document.

    If more of the document was read for an answer, the answer and its question are left out, and so are later
    summaries. Small talk stays, because no document was read for it.
    """

    def beyond(question: str, message: Message) -> bool | None:
        if message.role == SUMMARY:
            return None
        until = (message.stats or {}).get("until")
        return not is_small_talk(question) and (until is None or until["characters"] > end)

    return _without(messages, beyond)


def messages_about(messages: Sequence[Message], sources: AskedSources) -> list[Message]:
    """Returns only the messages of a branch that depend on no other sources than these.

    If an answer was asked about other sources too, the answer and its question are left out, even if it cites none of
    them: the model had read them. An answer that was stored without its sources counts by its citations. A summary that
    was stored without its sources is left out if a message before it is.
    """

    def elsewhere(question: str, message: Message) -> bool | None:
        if asked := AskedSources.from_stats(message.stats):
            return not sources.includes(asked)
        if message.role == SUMMARY:
            return None
        cited = {citation["document"] for citation in message.citations}
        return not (sources.library or sources.collection) and not cited <= sources.documents.keys()

    return _without(messages, elsewhere)


def _without(messages: Sequence[Message], is_out: Callable[[str, Message], bool | None]) -> list[Message]:
    """Returns messages without the answers and summaries, and their questions, for which ``is_out(question, message)``
    is True. It may return None for a summary, which is then left out if any message before it is.
    """
    known, question, any_out = list[Message](), list[Message](), False
    for message in messages:
        if message.role == "user":
            question = [message]
            continue
        told = is_out(question[0].text if question else "", message)
        out = any_out if told is None else told
        any_out = any_out or out
        known += [] if out else [*question, message]
        question = []
    return known


def history(messages: Sequence[Message], about_documents: bool = False) -> list[Exchange]:
    """Returns the earlier questions and answers of a branch that the prompt includes, as pairs.

    A summary replaces the answers before it, except those about sources that were not ticked when it was made. In a
    chat ``about_documents``, small talk is left out, because it was answered without the documents.
    """
    exchanges, question = list[tuple[str, Message]](), ""
    for message in messages:
        if message.role == "user":
            question = message.text
        elif message.role == SUMMARY:
            exchanges = [*_not_in(message, exchanges), (SUMMARIZE_CHAT, message)]
        elif not (about_documents and is_small_talk(question)):
            exchanges.append((question, message))
    return [(question, message.text) for question, message in exchanges]


def _not_in(summary: Message, exchanges: Sequence[tuple[str, Message]]) -> list[tuple[str, Message]]:
    """Returns the exchanges about sources that the ``summary`` is not about. If that is unknown, returns none."""
    covered = AskedSources.from_stats(summary.stats)
    asked = [(AskedSources.from_stats(message.stats), question, message) for question, message in exchanges]
    return [(question, message) for its, question, message in asked if covered and its and not covered.includes(its)]
