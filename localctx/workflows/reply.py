"""Reply: the next message of a conversation that a client sends word for word, as OpenAI's API has it."""

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Done, Note
from localctx.engine.prompt import Conversation
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer_request, run_request
from localctx.models.base import Messages
from localctx.settings import Settings


def reply(builder: RequestBuilder, settings: Settings, messages: Messages) -> EngineCoroutine[None]:
    """Answer ``messages`` in at most ``settings.max_tokens``, sampled as ``settings`` say; the plan comes first, Done
    last.

    Pages are reused where the conversation begins as an earlier one or a kept document does, and stay in memory for
    later ones; none are persisted. Raises TooLong, NoRoom.
    """
    with builder.runtime.running():
        builder.runtime.load()
        conversation = Conversation(messages=messages, max_tokens=settings.max_tokens)
        texts = [message["content"] for message in messages]
        request = builder.build([], texts, "", persist=True, conversation=conversation)
        request.persister = None
        yield request.plan
        yield from run_request(request, answer_request(request, settings))
        builder.runtime.pools.trim()
    yield from map(Note, request.persist_notes)
    yield Done(request.answer_report(), request.persist_error)
