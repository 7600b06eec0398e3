"""Summarizing: what is done of one document of a batch, as steps; several documents' may be run together.

A document that fits is read whole. A longer one falls into sections, and either the summaries of these are summarized
until there is one, or the summary is carried from section to section. What is said of a section stays linked to it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Note, Progress
from localctx.errors import Cancelled, NothingFound, TooLong
from localctx.library.cite import cite_passages
from localctx.library.search import Passage, is_line_based
from localctx.library.sections import Section, section_at, sections
from localctx.library.sentences import sentences
from localctx.settings import Settings
from localctx.store.batch_results import part_of
from localctx.store.documents import StoredDocument, labels
from localctx.store.store import Store, read_store, store_errors
from localctx.workflows.summary_task import PART, SummaryTask, digest
from localctx.workflows.text_generator import TextGenerator

MOST = 2048  # tokens of a section: more is read at once as well, but small models then tell the first and last of it
LEAST = 64  # tokens; what has no room for a section of these cannot be summarized
SUPPORT = 0.3  # of a sentence's words, by weight, that its source must have: a summary says things in other words
NEAR = 2  # sections in which the words that support a sentence are looked for


class _SectionSummary(NamedTuple):
    """A section and what was said of it."""

    section: Section
    said: str


class SummarizeWorkflow:
    """Summarizes documents, or asks them all the same. ``open_speaker`` gives who speaks about one, ``read_file`` reads
    a file or finds it kept.
    """

    def __init__(
        self,
        settings: Settings,
        open_store: Callable[[], Store],
        open_speaker: Callable[[StoredDocument], TextGenerator],
        read_file: Callable[[str], StoredDocument],
        cancelled: Callable[[], bool],
    ) -> None:
        self.settings, self.open_store, self.read_file = settings, open_store, read_file
        self._open_speaker, self._cancelled = open_speaker, cancelled

    def of(self, held: StoredDocument, task: SummaryTask, keep: bool = False) -> EngineCoroutine[dict[str, Any]]:
        """What ``task`` wants of a document, as JSON; ``keep`` its pages where it is read whole for a summary.

        Raises DocumentError, TooLong or NoRoom where it cannot be had of this one, Cancelled.
        """
        speaker, start = self._open_speaker(held), time.perf_counter()
        job = _DocumentSummary(speaker, held, task, _PartialResults(self, held, task))
        found = (yield from job.answers()) if task.questions else (yield from job.summary(keep))
        seconds = round(time.perf_counter() - start, 4)
        return {**found, "model": speaker.model, "tokens": dict(speaker.spent), "seconds": seconds}

    def check(self) -> None:
        """Raises Cancelled."""
        if self._cancelled():
            raise Cancelled


class _PartialResults:
    """What was said on the way to a result: it is kept until that is there, however often a run is killed."""

    def __init__(self, of: SummarizeWorkflow, held: StoredDocument, task: SummaryTask) -> None:
        self._of, self._held, self._recipe = of, held, task.recipe(of.settings)

    def once(self, asked: list[str], say: Callable[[], EngineCoroutine[str]]) -> EngineCoroutine[str]:
        """What was said when just this was ``asked``, or is now. Raises StoreError."""
        (row, text, spans), recipe, home = self._held, part_of(self._recipe, digest(asked)), self._of.settings.home
        if found := read_store(home, self._of.open_store, lambda store: store.results.get(row.id, recipe)):
            return found["said"]
        said = yield from say()
        store = self._of.open_store()
        with store_errors(home), store.db.atomic():
            store.documents.add(row, text, spans)
            store.results.put(row.id, recipe, {"said": said})
        return said


class _DocumentSummary:
    """A task on one document on its way."""

    def __init__(self, speaker: TextGenerator, held: StoredDocument, task: SummaryTask, parts: _PartialResults) -> None:
        self._speaker, self._held, self._task, self._parts = speaker, held, task, parts
        self._most = 0  # tokens of a section

    def answers(self) -> EngineCoroutine[dict[str, Any]]:
        """Every question as it would be answered alone."""
        answers, questions = list[dict[str, Any]](), self._task.questions
        for i, question in enumerate(questions):
            yield Progress("questions", i, len(questions))
            try:
                found, why = (yield from self._speaker.answer(question)), ""
            except NothingFound as e:  # the other questions may find something
                found, why = {"answer": "", "mode": "retrieve", "citations": []}, str(e)
            answers.append({"question": question, **found, "why": why})
        return {"summary": None, "answers": answers, "sections": [], "citations": [], "mode": "questions"}

    def summary(self, keep: bool) -> EngineCoroutine[dict[str, Any]]:
        """The document's summary, what was said of its sections, and the words it stands on."""
        (_, text, spans), task = self._held, self._task
        try:
            said = yield from self._speaker.say_of_all(task.whole, task.tokens, keep)
        except TooLong:
            mode, parts = "refine" if task.refine else "sections", (yield from self._in_sections())
            said = parts[-1].said if task.refine else (yield from self._together([p.said for p in parts]))
        else:
            mode = "whole"
            parts = [_SectionSummary(section_at(spans, 0, len(text)), said)]
        listed = [{**asdict(section), "summary": words} for section, words in parts]
        citations = cited(self._held, said, parts)
        return {"summary": said, "answers": [], "sections": listed, "citations": citations, "mode": mode}

    def _in_sections(self) -> EngineCoroutine[list[_SectionSummary]]:
        """What is said of each section; where one is too long after all, of sections half as long."""
        self._most = min(MOST, self._speaker.window // 2)
        while True:
            found = self._cut()
            try:
                return (yield from self._through(found))
            except TooLong as e:
                self._halve(e)
                yield Note(f"{e.problem}; sections of {self._most:,} tokens are tried")

    def _through(self, found: Sequence[Section]) -> EngineCoroutine[list[_SectionSummary]]:
        """What is said of each section, in order; to refine, what is said of all up to it."""
        parts, said = list[_SectionSummary](), ""
        text, task = self._held[1], self._task
        for i, section in enumerate(found):
            yield Progress("sections", i, len(found))
            part = text[section.start : section.end]
            if not task.refine:
                said = yield from self._ask([part], task.part, PART[1])
            elif said:
                said = yield from self._ask([said, part], task.further, task.tokens)
            else:
                said = yield from self._ask([part], task.whole, task.tokens)
            parts.append(_SectionSummary(section, said))
        return parts

    def _together(self, said: list[str]) -> EngineCoroutine[str]:
        """Summaries as one. On each level as many are read together as fit, two at least."""
        while len(said) > 1:
            groups, said = self._groups(said), []
            for i, group in enumerate(groups):
                yield Progress("summaries", i, len(groups))
                several = len(group) > 1
                together = self._ask(["\n\n".join(group)], self._task.together, self._task.tokens)
                said.append((yield from together) if several else group[0])
        return said[0]

    def _groups(self, said: Sequence[str]) -> list[list[str]]:
        count = self._speaker.count
        groups, tokens = [[said[0]]], count(said[0])
        for one in said[1:]:
            more = count(one)
            if len(groups[-1]) > 1 and tokens + more > self._most:
                groups.append([])
                tokens = 0
            groups[-1].append(one)
            tokens += more
        return groups

    def _cut(self) -> list[Section]:
        """Sections the longest of which fits the window and the memory there is. Raises TooLong where none would."""
        row, text, spans = self._held
        while True:
            found = sections(text, spans, self._speaker.count, self._most, is_line_based(row.name))
            longest = max((text[s.start : s.end] for s in found), key=len)
            try:
                carried = [longest[: len(longest) // 2]] if self._task.refine else []  # room for what is carried along
                self._speaker.refuse_too_long([*carried, longest], self._task.further)
                return found
            except TooLong as e:
                self._halve(e)

    def _halve(self, e: TooLong) -> None:
        if self._most <= LEAST:
            raise e
        self._most //= 2

    def _ask(self, texts: Sequence[str], instruction: str, tokens: int) -> EngineCoroutine[str]:
        """An answer of at most so many ``tokens``, and of half a section: two of them can be read together."""
        most = min(tokens, self._most // 2)
        return self._parts.once([*texts, instruction, str(most)], lambda: self._speaker.say(texts, instruction, most))


def cited(held: StoredDocument, said: str, parts: Sequence[_SectionSummary]) -> list[dict[str, Any]]:
    """For each sentence of the summary ``said`` the words of the document that support it best, if any; ``at`` is where
    in the summary it ends.

    No model is asked to carry page numbers along, which small ones garble: the sentence leads to the sections whose
    summaries say it, these to their text, and that to its page.
    """
    (row, text, spans), found = held, list[dict[str, Any]]()
    page, heading = (labels(spans, kind) for kind in ("page", "heading"))
    summaries = [_passage(str(i), row.name, 0, words) for i, (_, words) in enumerate(parts)]
    for start, end in sentences(said, 0, len(said)):
        near = [parts[int(quote.document)].section for quote in cite_passages(said[start:end], "", summaries)[:NEAR]]
        passages = [_passage(row.id, row.name, s.start, text[s.start : s.end]) for s in near]
        for c in cite_passages(said[start:end], "", passages)[:1]:
            if c.weight >= SUPPORT:
                found.append({**asdict(c), "page": page(c.start), "heading": heading(c.start), "at": end})
    return found


def _passage(document: str, name: str, start: int, text: str) -> Passage:
    return Passage(document, name, start, start + len(text), text, None, None, 0.0, {})
