"""The results of the Python API: answers and summaries, with their citations and costs."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from localctx.document_parts import Citation
from localctx.engine.coroutine import consume
from localctx.engine.events import Done, Event, Note
from localctx.engine.request_report import AnswerReport
from localctx.library.citations.answer_groups import AnswerGroup
from localctx.library.citations.sentence_sources import AnswerSentence


@dataclass(frozen=True)
class AnswerStats:
    """The cost of an answer in tokens and seconds. Of the tokens of the ``prompt``, some were ``reused`` from kept
    pages, others ``prefilled`` now. ``generated`` is the number of tokens of the answer. ``seconds`` has the time of
    each phase (load, parse, search, restore, rank, prefill, first_token, decode).
    """

    prompt: int
    reused: int
    prefilled: int
    generated: int
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """The answer to a question: its ``text``, ``citations`` and ``stats``.

    ``stopped`` is why the answer ended: ``eos`` (complete), ``length`` (cut at max_tokens), ``repeated``, ``cancelled``
    or ``unanswered`` (no text answers the question; ``nearest`` is the passage that comes nearest).

    ``mode`` is what was read: ``full`` documents, or passages (``retrieve``). Further modes are ``everywhere`` (every
    passage was asked about; ``groups`` are the answers), ``compared`` (each document was asked about) and ``table``
    (``query`` is the SQL that computed the answer).

    ``notes`` are lines of text for the user. ``persist_error`` is the reason if pages could not be kept. ``decoding``
    is ``quote`` if the answer consists of words of the documents, else ``free``. ``confidence`` is the probability that
    the text answers the question, or None if no adapter rates answers. ``sentences`` are the sentences of the answer,
    each with the passage that supports it, if any. ``until`` is the part that was read, if only the beginning of a
    document was.
    """

    text: str
    citations: tuple[Citation, ...]
    stats: AnswerStats
    stopped: str
    mode: str
    notes: tuple[str, ...] = ()
    persist_error: str | None = None
    chat: str | None = None
    groups: tuple[AnswerGroup, ...] = ()
    decoding: str = "free"
    confidence: float | None = None
    until: Mapping[str, Any] | None = None
    sentences: tuple[AnswerSentence, ...] = ()
    nearest: Citation | None = None
    query: str | None = None

    def __str__(self) -> str:
        return self.text

    @classmethod
    def from_report(cls, report: AnswerReport, notes: tuple[str, ...], persist_error: str | None) -> "Answer":
        """Returns the answer that the report of a request contains."""
        t = report.tokens
        return cls(
            text=report.answer,
            citations=tuple(map(Citation.from_json, report.citations)),
            stats=AnswerStats(t.prompt, t.reused, t.prefilled, t.generated, report.seconds),
            stopped=report.stopped,
            mode=report.mode,
            notes=notes,
            persist_error=persist_error,
            chat=report.chat,
            groups=tuple(map(_group_from_json, report.everywhere.groups)) if report.everywhere else (),
            decoding=report.decoding,
            confidence=report.confidence,
            until=report.until,
            sentences=tuple(map(AnswerSentence.from_json, report.sentences)),
            nearest=Citation.from_json(report.nearest) if report.nearest else None,
            query=report.query,
        )


@dataclass(frozen=True)
class Summary:
    """The summary of one document. ``sections`` are the document's sections with their own summaries (only one if the
    document was read whole).

    ``mode`` is how the summary was made: from the ``whole`` text, from summaries of ``sections``, by refining one
    summary section by section (``refine``), or from sentences of the document (``extract``).
    """

    document: str
    name: str
    text: str
    citations: tuple[Citation, ...]
    sections: tuple[Mapping[str, Any], ...]
    tokens: Mapping[str, int]
    seconds: float
    mode: str = "whole"

    def __str__(self) -> str:
        return self.text


def answer_of(events: Generator[Event, None, None]) -> Answer:
    """Run ``events`` to the end. Returns the answer in the last event."""
    notes, done = list[str](), list[Done]()

    def on_event(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.text)
        elif isinstance(event, Done):
            done.append(event)

    consume(events, on_event)
    report = done[-1].report
    assert isinstance(report, AnswerReport), "a question ends with an answer's report"
    return Answer.from_report(report, tuple(notes), done[-1].failed)


def _group_from_json(group: Mapping[str, Any]) -> AnswerGroup:
    return AnswerGroup(group["answer"], tuple(group["citations"]))
