"""Has the model suggest questions about a document, and stores them with it. Small models are not used for this."""

import re
from collections.abc import Sequence

from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.request_builder import RequestBuilder
from localctx.errors import UserError
from localctx.library.wording.identify_language import NAMES, language_of
from localctx.store.documents import StoredDocument
from localctx.store.store import store_errors
from localctx.workflows.ahead.suggested_questions import COUNT, suggest_questions
from localctx.workflows.answer.ask import AskWorkflow
from localctx.workflows.summary_task import digest
from localctx.workflows.text_generator import LocalGenerator, without_text

SMALL_MODEL = 1_000_000_000  # parameters; the document often does not answer questions of smaller models
VERSION = 1  # version of the instruction; part of the key of stored questions
MAX_TOKENS = 120  # of all questions together
MAX_READ = 6_000  # first characters read of a document that is not read whole
LENGTHS = range(12, 140)  # characters of a question
_INSTRUCTION = (
    "Write {count} short questions that the document above answers, each on a line of its own, without numbers."
)
_MARKS = re.compile(r"^[^\w¿]*(?:(?:question|q)\s*\d*\s*[:.][^\w¿]*|\d+\s*[.)][^\w¿]*)?", re.IGNORECASE)


def able_to_ask(builder: RequestBuilder) -> bool:
    """Returns True if the model is large enough to suggest questions about a document that the document answers."""
    return builder.model.parameters >= SMALL_MODEL


def model_questions(
    builder: RequestBuilder, ask: AskWorkflow, document: StoredDocument, whole: bool
) -> EngineCoroutine[list[str]]:
    """Returns suggested questions about ``document``: first questions by the model, then questions made by rules, up to
    COUNT in all.

    If ``whole``, the model reads the whole document, else its beginning. The questions are generated once and stored.
    Raises Cancelled.
    """
    runtime = builder.runtime
    recipe = digest(["suggested questions", str(VERSION), runtime.settings.model])
    if found := runtime.read_store(lambda store: store.results.get(document.id, recipe)):
        return list(found["questions"])
    try:
        text = yield from map_events(_generate(builder, ask, document, whole), without_text)
    except UserError:  # too long after all, or no memory: rules need neither
        text = ""
    made = parse_questions(text)
    questions = [*made, *(q for q in suggest_questions(document.text, document.spans) if q not in made)][:COUNT]
    store = runtime.store
    with store_errors(store.home):
        store.results.put(document.id, recipe, {"questions": questions})
    return questions


def parse_questions(text: str) -> list[str]:
    """Returns the questions in ``text``, the model's reply, which has one question per line. Numbers and list marks are
    removed.
    """
    lines = (_MARKS.sub("", line).strip().strip('*"“”') for line in text.splitlines())
    questions = dict.fromkeys(line for line in lines if line.endswith(("?", "？")) and len(line) in LENGTHS)  # noqa: RUF001
    return list(questions)[:COUNT]


def _generate(builder: RequestBuilder, ask: AskWorkflow, document: StoredDocument, whole: bool) -> EngineCoroutine[str]:
    generator, instruction = LocalGenerator(builder, ask, document), _INSTRUCTION.format(count=COUNT)
    language = language_of(document.text)
    if language and language != "en":
        instruction += f" Write in {NAMES[language]}."
    if whole:
        return (yield from generator.generate_from_whole(instruction, MAX_TOKENS, persist=False))
    return (yield from generator.generate([document.text[:MAX_READ]], instruction, MAX_TOKENS))


def rule_questions(documents: Sequence[StoredDocument], count: int = COUNT) -> list[str]:
    """Returns up to ``count`` questions made by rules, without a model: about one document, or about several documents
    in turn.
    """
    found = [suggest_questions(document.text, document.spans, count) for document in documents]
    in_turn = [questions[i] for i in range(count) for questions in found if i < len(questions)]
    return list(dict.fromkeys(in_turn))[:count]
