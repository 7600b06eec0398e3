"""Selects the history for the prompt of a chat's next question."""

from collections.abc import Sequence

from localctx.engine.prompt import Exchange
from localctx.engine.prompt_wording import SUMMARIZE_CHAT
from localctx.errors import ChatError
from localctx.store.chats import SUMMARY, Chats, Message
from localctx.workflows.answer.question_kind import is_small_talk


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
    known, question, further = list[Message](), list[Message](), False
    for message in messages:
        if message.role == "user":
            question = [message]
            continue
        if message.role == SUMMARY:
            beyond = further
        else:
            until = (message.stats or {}).get("until")
            small_talk = bool(question) and is_small_talk(question[0].text)
            beyond = not small_talk and (until is None or until["characters"] > end)
        further = further or beyond
        known += [] if beyond else [*question, message]
        question = []
    return known


def history(messages: Sequence[Message], about_documents: bool = False) -> list[Exchange]:
    """Returns the earlier questions and answers of a branch that the prompt includes, as pairs.

    A summary replaces everything before it. In a chat ``about_documents``, small talk is left out, because it was
    answered without the documents.
    """
    exchanges, question = list[Exchange](), ""
    for message in messages:
        if message.role == "user":
            question = message.text
        elif message.role == SUMMARY:
            exchanges = [(SUMMARIZE_CHAT, message.text)]
        elif not (about_documents and is_small_talk(question)):
            exchanges.append((question, message.text))
    return exchanges
