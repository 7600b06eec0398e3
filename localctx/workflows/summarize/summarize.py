"""Summarizes one document with citations, or answers questions about it, as an engine coroutine.

The method ``extract`` returns sentences of the document and loads no model. With the method ``write``, the model reads
a document whole if it fits, and otherwise in sections. The summaries of the sections are merged until one is left. With
``refine``, the model instead extends one summary with each section. Every summary of a section stays linked to its
section, for citations.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Note, Progress
from localctx.engine.runtime import Runtime
from localctx.errors import NothingFound, TooLong
from localctx.library.citations.cite import cite_passages
from localctx.library.citations.false_sentences import FalseSentenceFilter
from localctx.library.citations.sentence_sources import SupportFinder
from localctx.library.citations.source_index import SourceIndex, SourceText
from localctx.library.search.indexing import is_line_based
from localctx.library.search.search import Passage
from localctx.library.search.sections import Section, section_at, sections
from localctx.library.wording.repeated_sentences import without_repeated_sentences
from localctx.library.wording.sentences import sentences
from localctx.store.batch_results import part_of
from localctx.store.documents import StoredDocument
from localctx.store.store import store_errors
from localctx.workflows.summarize.extract_summary import extract_summary
from localctx.workflows.summary_task import MAX_SECTION, SECTION_LENGTH, SummaryTask, digest
from localctx.workflows.text_generator import GeneratedAnswer, TextGenerator

MIN_SECTION = 64  # tokens; a document that needs shorter sections cannot be summarized
# share of a sentence's words, by weight, that its source must have; it is low because a summary uses other words
MIN_SUPPORT = 0.3
MAX_SOURCES = 2  # sections searched for the support of a sentence


class _SectionSummary(NamedTuple):
    section: Section
    summary: str


class SummarizeWorkflow:
    """Summarizes documents, or asks each of them the same questions.

    ``open_generator`` is a function that returns the text generator for a document.
    """

    def __init__(self, runtime: Runtime, open_generator: Callable[[StoredDocument], TextGenerator]) -> None:
        self.runtime, self._open_generator = runtime, open_generator

    def summarize(
        self, document: StoredDocument, task: SummaryTask, persist: bool = False
    ) -> EngineCoroutine[dict[str, Any]]:
        """Do ``task`` for one document, and return the result as JSON: ``summary``, ``answers``, ``sections``,
        ``citations``, ``mode``, ``model``, ``tokens`` and ``seconds``.

        If ``persist``, the pages of a document that is read whole are kept. Raises DocumentError, TooLong or
        OutOfKVMemory if the task cannot be done for this document; Cancelled.
        """
        if task.method(self.runtime.settings).extracts:
            return extract_summary(document, task)
        start = time.perf_counter()
        generator = self._open_generator(document)
        job = _DocumentSummary(generator, document, task, _PartialResults(self.runtime, document, task))
        result = (yield from job.answers()) if task.questions else (yield from job.summary(persist))
        seconds = round(time.perf_counter() - start, 4)
        return {**result, "model": generator.model, "tokens": dict(generator.token_counts), "seconds": seconds}


def _answers_result(answers: list[dict[str, Any]]) -> dict[str, Any]:
    return {"summary": None, "answers": answers, "sections": [], "citations": [], "mode": "questions"}


class _PartialResults:
    """Stores intermediate texts, so that a run that was killed continues from there."""

    def __init__(self, runtime: Runtime, document: StoredDocument, task: SummaryTask) -> None:
        self._runtime, self._document, self._task = runtime, document, task
        self._recipe = task.recipe(runtime.settings)

    def once(self, key: list[str], generate: Callable[[], EngineCoroutine[str]]) -> EngineCoroutine[str]:
        """Returns the text stored under ``key``. If there is none, generates and stores it. Raises StoreError."""
        document, recipe = self._document, part_of(self._recipe, digest(key))
        if found := self._runtime.read_store(lambda store: store.results.get(document.id, recipe)):
            return found["said"]
        text = yield from generate()
        self._store(recipe, {"said": text})
        return text

    def answer(
        self, question: str, generate: Callable[[], EngineCoroutine[dict[str, Any]]]
    ) -> EngineCoroutine[dict[str, Any]]:
        """Returns the stored result for this question alone, even if another batch stored it. If there is none,
        computes and stores it. Raises StoreError.
        """
        recipe = self._task.of_question(question).recipe(self._runtime.settings)
        if found := self._runtime.read_store(lambda store: store.results.get(self._document.id, recipe)):
            return found
        made = yield from generate()
        self._store(recipe, made)
        return made

    def _store(self, recipe: str, result: dict[str, Any]) -> None:
        store = self._runtime.store
        with store_errors(store.home), store.db.atomic():
            store.documents.add(*self._document)
            store.results.put(self._document.id, recipe, result)


class _DocumentSummary:
    """Does a task for one document: summarizes it, or answers questions about it."""

    def __init__(
        self, generator: TextGenerator, document: StoredDocument, task: SummaryTask, stored: _PartialResults
    ) -> None:
        self._generator, self._document, self._task, self._stored = generator, document, task, stored
        self._section_tokens = 0  # the most tokens of a section

    def answers(self) -> EngineCoroutine[dict[str, Any]]:
        """Answer every question as if it were asked alone, except questions whose answers are stored."""
        answers, questions = list[dict[str, Any]](), self._task.questions
        for i, question in enumerate(questions):
            yield Progress("questions", i, len(questions))
            result = yield from self._stored.answer(question, partial(self._answer, question))
            answers += result["answers"]
        return _answers_result(answers)

    def _answer(self, question: str) -> EngineCoroutine[dict[str, Any]]:
        """Answer one question. Returns the same result as a batch that asks only this question."""
        start, before = time.perf_counter(), Counter(self._generator.token_counts)
        try:
            answer = yield from self._generator.answer(question)
        except NothingFound as e:  # goes on, because passages may match the other questions
            found: dict[str, Any] = {"answer": "", "mode": "retrieve", "citations": [], "sentences": [], "why": str(e)}
            found |= {"answered": False, "confidence": None}
        else:
            cited = [citation.to_json() for citation in answer.citations]
            found = {"answer": answer.text, "mode": answer.mode, "citations": cited, "why": ""}
            found |= {"sentences": self._checked(question, answer)}
            found |= {"answered": answer.answered, "confidence": answer.confidence}
        tokens = {name: count - before[name] for name, count in self._generator.token_counts.items()}
        cost = {"model": self._generator.model, "tokens": tokens, "seconds": round(time.perf_counter() - start, 4)}
        return {**_answers_result([{"question": question, **found}]), **cost}

    def _checked(self, question: str, answer: GeneratedAnswer) -> list[dict[str, Any]]:
        """Returns the sentences of an answer, each with the passage of the document that supports it, as JSON."""
        if answer.mode == "everywhere":  # the answer names its places itself
            return []
        near = [citation.range for citation in answer.citations]
        checked = SupportFinder([SourceText.of(self._document)], question).check(answer.text, near=near)
        return [sentence.to_json() for sentence in checked]

    def summary(self, persist: bool) -> EngineCoroutine[dict[str, Any]]:
        """Summarize the document. Returns JSON with the summary, the summaries of the sections, and the citations."""
        (_, text, spans), task = self._document, self._task
        try:
            written = yield from self._generator.generate_from_whole(task.document_instruction, task.tokens, persist)
            summary = without_repeated_sentences(written)
        except TooLong:
            mode, parts = "refine" if task.refine else "sections", (yield from self._in_sections())
            summary = parts[-1].summary if task.refine else (yield from self._merge([p.summary for p in parts]))
        else:
            mode = "whole"
            parts = [_SectionSummary(section_at(spans, 0, len(text)), summary)]
        false_sentences = FalseSentenceFilter(self._document)
        filtered = false_sentences.filter(summary)
        if filtered.left_out:
            yield Note(_left_out_text(self._document.row.name, filtered.left_out))
        if filtered.left_out and not filtered.text:
            return extract_summary(self._document, task)
        parts = [part._replace(summary=false_sentences.filter(part.summary).text) for part in parts]
        listed = [{**asdict(part.section), "summary": part.summary} for part in parts]
        citations = cite_summary(self._document, filtered.text, parts)
        return {"summary": filtered.text, "answers": [], "sections": listed, "citations": citations, "mode": mode}

    def _in_sections(self) -> EngineCoroutine[list[_SectionSummary]]:
        """Returns the summary of each section. If a prompt turns out to be too long, tries again with sections of half
        the length.
        """
        self._section_tokens = min(MAX_SECTION, self._generator.window // 2)
        while True:
            found = self._cut()
            try:
                return (yield from self._summarize_sections(found))
            except TooLong as e:
                self._halve(e)
                yield Note(f"{e.problem}; sections of {self._section_tokens:,} tokens are tried")

    def _summarize_sections(self, found: Sequence[Section]) -> EngineCoroutine[list[_SectionSummary]]:
        """Returns the summary of each section, in order.

        With ``refine``, each is the summary of everything up to the end of the section.
        """
        parts, summary = list[_SectionSummary](), ""
        text, task = self._document.text, self._task
        for i, section in enumerate(found):
            yield Progress("sections", i, len(found))
            part = text[section.start : section.end]
            if not task.refine:
                summary = yield from self._generate([part], task.section_instruction, SECTION_LENGTH[1])
            elif summary:
                summary = yield from self._generate([summary, part], task.refine_instruction, task.tokens)
            else:
                summary = yield from self._generate([part], task.document_instruction, task.tokens)
            parts.append(_SectionSummary(section, summary))
        return parts

    def _merge(self, summaries: list[str]) -> EngineCoroutine[str]:
        """Merge summaries into one. In each round, as many summaries as fit into a section, but at least two, are
        merged by one prompt.
        """
        while len(summaries) > 1:
            groups, summaries = self._groups(summaries), []
            for i, group in enumerate(groups):
                yield Progress("summaries", i, len(groups))
                merged = self._generate(["\n\n".join(group)], self._task.merge_instruction, self._task.tokens)
                summaries.append((yield from merged) if len(group) > 1 else group[0])
        return summaries[0]

    def _groups(self, summaries: Sequence[str]) -> list[list[str]]:
        count = self._generator.count
        groups, tokens = [[summaries[0]]], count(summaries[0])
        for summary in summaries[1:]:
            more = count(summary)
            if len(groups[-1]) > 1 and tokens + more > self._section_tokens:
                groups.append([])
                tokens = 0
            groups[-1].append(summary)
            tokens += more
        return groups

    def _cut(self) -> list[Section]:
        """Divide the document into sections, of which the longest fits into the window and the memory. Raises TooLong
        if even the shortest allowed sections do not fit.
        """
        row, text, spans = self._document
        while True:
            found = sections(text, spans, self._generator.count, self._section_tokens, is_line_based(row.name))
            longest = max((text[s.start : s.end] for s in found), key=len)
            try:
                carried = [longest[: len(longest) // 2]] if self._task.refine else []  # room for the summary so far
                self._generator.refuse_too_long([*carried, longest], self._task.refine_instruction)
                return found
            except TooLong as e:
                self._halve(e)

    def _halve(self, e: TooLong) -> None:
        if self._section_tokens <= MIN_SECTION:
            raise e
        self._section_tokens //= 2

    def _generate(self, texts: Sequence[str], instruction: str, max_tokens: int) -> EngineCoroutine[str]:
        """Generate a text of at most ``max_tokens`` and at most half the tokens of a section, so that two such texts
        fit in one prompt. A stored text is reused.
        """
        tokens = min(max_tokens, self._section_tokens // 2)

        def generate() -> EngineCoroutine[str]:
            return without_repeated_sentences((yield from self._generator.generate(texts, instruction, tokens)))

        return self._stored.once([*texts, instruction, str(tokens)], generate)


def _left_out_text(name: str, left_out: Sequence[str]) -> str:
    """Returns the note for sentences that were ``left_out`` of a summary of the document ``name``."""
    number = "a sentence was" if len(left_out) == 1 else f"{len(left_out)} sentences were"
    quoted = " ".join(f"“{sentence}”" for sentence in left_out)
    return f"{name}: {number} left out of the summary, because the document has other figures or denies it: {quoted}"


def cite_summary(document: StoredDocument, summary: str, parts: Sequence[_SectionSummary]) -> list[dict[str, Any]]:
    """Returns citations for the sentences of a ``summary``, as JSON. ``parts`` are the summaries of the sections.

    A citation has the words of the document that support a sentence best; ``at`` is the end of the sentence in the
    summary. To find the words, the sections whose summaries resemble the sentence are searched. (Page numbers are not
    asked of the model, because a small model would garble them.)
    """
    citations = list[dict[str, Any]]()
    summaries = [_passage(str(i), document.name, 0, part.summary) for i, part in enumerate(parts)]
    for start, end in sentences(summary, 0, len(summary)):
        sentence = summary[start:end]
        sources = [parts[int(quote.document)].section for quote in cite_passages(sentence, "", summaries)[:MAX_SOURCES]]
        match = SourceIndex([SourceText.of(document, s.start, s.end) for s in sources]).best_match(sentence)
        if match and match.share >= MIN_SUPPORT:
            citations.append({**asdict(match.cite()), "at": end})
    return citations


def _passage(document: str, name: str, start: int, text: str) -> Passage:
    return Passage(document, name, start, start + len(text), text, None, None, 0.0, {})
