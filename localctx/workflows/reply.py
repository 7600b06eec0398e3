"""Replying: the next turn of a conversation as it was told, word for word. Nothing of it is kept."""

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Done, Note
from localctx.engine.prompt import Conversation
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer, read, shut
from localctx.errors import Cancelled
from localctx.models.base import Messages
from localctx.settings import Settings


def reply(opener: RequestBuilder, settings: Settings, messages: Messages) -> EngineCoroutine[None]:
    """The answer to ``messages``, in at most ``settings.max_tokens``, after what it will cost; the last event is Done.

    Pages that are kept of documents are used where a conversation begins as they were read. Raises TooLong, NoRoom.
    """
    of = Conversation(messages=messages, most=settings.max_tokens)
    work = opener.open([], [m["content"] for m in messages], "", keep=True, of=of)
    work.keeping = None
    try:
        yield work.plan
        logits = yield from read(work)
        assert logits is not None, "the last token is always left to be read"
        yield from answer(work, logits, opener.model.tokenizer, settings)
    except Cancelled:
        pass
    finally:
        shut(work)
    yield from map(Note, work.notes)
    yield Done(work.answered(settings.model))
