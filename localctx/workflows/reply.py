"""Answers a raw conversation or continues a raw text, as OpenAI's API does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Done, Note
from localctx.engine.prompt import Conversation, Exchange
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer_request, run_request
from localctx.engine.runtime import Runtime
from localctx.errors import DocumentError, UsageError
from localctx.models.base import Messages
from localctx.models.token_controls import NO_CONTROLS, TokenControls
from localctx.settings import Settings
from localctx.store.documents import StoredDocument
from localctx.workflows.answer.ask import AskWorkflow


@dataclass(frozen=True)
class ReplyRequest:
    """The parameters of a reply, in one of three forms.

    The reply is the next message after ``messages``, which may call ``tools``; or the continuation of the text ``raw``;
    or the answer to ``question`` from stored ``documents`` (ids), after a ``history`` about them. It has at most
    ``settings.max_tokens`` tokens, sampled according to ``settings`` and ``controls``.
    """

    settings: Settings
    messages: Messages = ()
    raw: str = ""
    tools: Sequence[Any] = ()
    controls: TokenControls = NO_CONTROLS
    documents: Sequence[str] = ()
    question: str = ""
    history: Sequence[Exchange] = ()


def reply(builder: RequestBuilder, questions: AskWorkflow, asked: ReplyRequest) -> EngineCoroutine[None]:
    """Generate the reply that ``asked`` describes. The first event is the plan, the last one Done.

    Pages are reused if the conversation begins like an earlier one or like a kept document. They stay in memory for
    later conversations; only pages of ``documents`` are persisted. Raises TooLong, OutOfKVMemory, DocumentError, and
    UsageError for an unusable grammar.
    """
    runtime = builder.runtime
    with runtime.running():
        runtime.load()
        if asked.documents:
            yield from _from_documents(builder, questions, asked)
            return
        if asked.tools and not builder.model.tokenizer.calls_tools:
            raise UsageError("tools are not supported: the chat template has none", "choose a model that calls tools")
        max_tokens = asked.settings.max_tokens
        conversation = Conversation(messages=asked.messages, raw=asked.raw, tools=asked.tools, max_tokens=max_tokens)
        texts = [str(message["content"]) for message in asked.messages] or [asked.raw]
        request = builder.build([], texts, "", persist=True, conversation=conversation)
        request.persister, request.controls = None, asked.controls
        yield request.plan
        yield from run_request(request, answer_request(request, asked.settings))
        runtime.pools.trim()
    yield Done(request.answer_report())


def _from_documents(builder: RequestBuilder, questions: AskWorkflow, asked: ReplyRequest) -> EngineCoroutine[None]:
    documents = [_stored(builder.runtime, document) for document in asked.documents]
    formatted = bool(asked.controls.grammar)
    conversation = Conversation(history=asked.history, max_tokens=asked.settings.max_tokens, formatted=formatted)
    request = yield from questions.open(documents, asked.question, True, conversation)
    request.controls = asked.controls
    yield from run_request(request, questions.answer(request, asked.question, asked.settings))
    yield from map(Note, request.persist_notes)
    yield Done(request.answer_report(), request.persist_error)


def _stored(runtime: Runtime, document: str) -> StoredDocument:
    """Returns the stored document with this full id. A path is not accepted, because a client must not read files.
    Raises DocumentError.
    """
    found = runtime.read_store(lambda store: store.documents.stored(document))
    if not found:
        raise DocumentError(f"there is no document {document!r:.80}", "GET /v1/files lists them")
    return found
