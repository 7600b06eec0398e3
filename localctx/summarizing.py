"""Summarizing: what is done of one document of a batch, as steps; several documents' may be run together.

A document that fits is read whole. A longer one falls into sections, and either the summaries of these are summarized
until there is one, or the summary is carried from section to section. What is said of a section stays linked to it.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

from localctx.engine.answer import answer, read, shut
from localctx.engine.events import Note, Progress
from localctx.engine.opener import Opener
from localctx.engine.prompt import Conversation
from localctx.engine.steps import Steps
from localctx.engine.work import Begun, Work
from localctx.errors import Cancelled, DocumentError, TooLong
from localctx.library.cite import quotes
from localctx.library.search import Passage, in_lines
from localctx.library.sections import Section, section_of, sections
from localctx.library.sentences import sentences
from localctx.settings import Settings
from localctx.store.documents import Held, labels
from localctx.store.store import Store
from localctx.task import AS_IT_IS, PART, Task

MOST = 2048  # tokens of a section: more is read at once as well, but small models then tell the first and last of it
LEAST = 64  # tokens; what has no room for a section of these cannot be summarized
ENDS = ".!?…。！？"  # noqa: RUF001
SUPPORT = 0.3  # of a sentence's words, by weight, that its source must have: a summary says things in other words
NEAR = 2  # sections in which the words that support a sentence are looked for


class _Told(NamedTuple):
    """A section and what was said of it."""

    section: Section
    said: str


class Summarizing:
    """Summarizes documents, or asks them all the same. ``open_opener`` loads the model, when it is first needed.

    ``begin`` opens the work on a question about documents, ``cite`` says in it what the answer stands on, ``read_file``
    reads a file or finds it kept.
    """

    def __init__(
        self,
        settings: Settings,
        open_store: Callable[[], Store],
        open_opener: Callable[[], Opener],
        read_file: Callable[[str], Held],
        begin: Callable[[Sequence[Held], str], Steps[Begun]],
        cite: Callable[[Begun, str], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self.settings, self.open_store, self.read_file = settings, open_store, read_file
        self._open_opener, self._begin, self._cite, self._cancelled = open_opener, begin, cite, cancelled

    def of(self, held: Held, task: Task, keep: bool = False) -> Steps[dict[str, Any]]:
        """What ``task`` wants of a document, as JSON; ``keep`` its pages where it is read whole for a summary.

        Raises DocumentError, TooLong or NoRoom where it cannot be had of this one, Cancelled.
        """
        opener, spent = self._open_opener(), Counter(prompt=0, reused=0, prefilled=0, generated=0, dropped=0)
        start = time.perf_counter()
        job = _Job(opener, self.settings, held, task, spent, self._cancelled)
        found = (yield from self._answers(job)) if task.questions else (yield from job.summary(keep))
        seconds = round(time.perf_counter() - start, 4)
        return {**found, "model": self.settings.model, "tokens": dict(spent), "seconds": seconds}

    def check(self) -> None:
        """Raises Cancelled."""
        if self._cancelled():
            raise Cancelled

    def _answers(self, job: "_Job") -> Steps[dict[str, Any]]:
        """Every question as ``ask`` answers it: the first reads what the others share."""
        answers = list[dict[str, Any]]()
        for i, question in enumerate(job.task.questions):
            yield Progress("questions", i, len(job.task.questions))
            try:
                begun = yield from self._begin([job.held], question)
            except DocumentError as e:  # nothing in it is like this question; others may find something
                answers.append({"question": question, "answer": "", "why": str(e), "mode": "retrieve", "citations": []})
                continue
            work = begun.work
            said = yield from job.say(begun, partial(self._cite, begun, question))
            how = {"mode": work.plan.mode, "citations": work.citations}
            answers.append({"question": question, "answer": said, "why": "", **how})
        return {"summary": None, "answers": answers, "sections": [], "citations": [], "mode": "questions"}


class _Job:
    """A task on one document on its way, and what was ``spent`` on it: tokens."""

    def __init__(
        self,
        opener: Opener,
        settings: Settings,
        held: Held,
        task: Task,
        spent: Counter[str],
        cancelled: Callable[[], bool],
    ) -> None:
        self._opener, self._settings, self._cancelled = opener, settings, cancelled
        self.held, self.task, self._spent = held, task, spent
        self._most = min(MOST, opener.model.trained // 2)

    def summary(self, keep: bool) -> Steps[dict[str, Any]]:
        """The document's summary, what was said of its sections, and the words it stands on."""
        _, text, spans = self.held
        try:
            work = self._open([text], self.task.whole, keep=True)
        except TooLong:
            mode, told = "refine" if self.task.refine else "sections", (yield from self._in_sections())
            said = told[-1].said if self.task.refine else (yield from self._together([t.said for t in told]))
        else:
            mode = "whole"
            said = yield from self._whole(work, keep)
            told = [_Told(section_of(spans, 0, len(text)), said)]
        parts = [{**asdict(section), "summary": words} for section, words in told]
        citations = cited(self.held, said, told)
        return {"summary": said, "answers": [], "sections": parts, "citations": citations, "mode": mode}

    def say(self, begun: Begun, cite: Callable[[], None] = lambda: None) -> Steps[str]:
        """The answer to what is opened, which is shut. Raises Cancelled, NoRoom."""
        work, logits = begun.work, begun.logits
        try:
            if logits is None:
                logits = yield from read(work)
            assert logits is not None, "an instruction is never there before it is read"
            yield from answer(work, logits, self._opener.model.tokenizer, self._settings)
            cite()
        finally:
            shut(work)
        dropped = self._count(work)
        yield from map(Note, (*work.notes, *([work.failed] if work.failed else [])))
        if dropped:
            yield Note(f"{work.plan.keeper} dropped {dropped:,} of {len(work.tokens):,} tokens: not all was seen")
        return finished(work.texts[0]) if work.stopped == "length" else work.texts[0]

    def _whole(self, work: Work, keep: bool) -> Steps[str]:
        """Pages that are kept are used. New ones are not kept unless that is wanted: a night's documents would push out
        those that somebody asks.
        """
        if keep:
            work.enter()
        else:
            work.keeping = None
        return (yield from self.say(Begun(work)))

    def _in_sections(self) -> Steps[list[_Told]]:
        """What is said of each section, in order; to refine, what is said of all up to it.

        Their pages are not kept: each is read once, and they would fill the disk's budget.
        """
        told, said = list[_Told](), ""
        text, found = self.held[1], self._cut()
        for i, section in enumerate(found):
            yield Progress("sections", i, len(found))
            part = text[section.start : section.end]
            if not self.task.refine:
                said = yield from self._ask([part], self.task.part, PART[1])
            elif said:
                said = yield from self._ask([said, part], self.task.further, self.task.tokens)
            else:
                said = yield from self._ask([part], self.task.whole, self.task.tokens)
            told.append(_Told(section, said))
        return told

    def _together(self, said: list[str]) -> Steps[str]:
        """Summaries as one. On each level as many are read together as fit, two at least."""
        while len(said) > 1:
            groups, said = self._groups(said), []
            for i, group in enumerate(groups):
                yield Progress("summaries", i, len(groups))
                several = len(group) > 1
                together = self._ask(["\n\n".join(group)], self.task.together, self.task.tokens)
                said.append((yield from together) if several else group[0])
        return said[0]

    def _groups(self, said: Sequence[str]) -> list[list[str]]:
        groups, tokens = [[said[0]]], self._tokens(said[0])
        for one in said[1:]:
            more = self._tokens(one)
            if len(groups[-1]) > 1 and tokens + more > self._most:
                groups.append([])
                tokens = 0
            groups[-1].append(one)
            tokens += more
        return groups

    def _cut(self) -> list[Section]:
        """Sections the longest of which fits the window and the memory there is. Raises TooLong where none would."""
        row, text, spans = self.held
        while True:
            found = sections(text, spans, self._tokens, self._most, in_lines(row.name))
            longest = max((text[s.start : s.end] for s in found), key=len)
            try:
                carried = [longest[: len(longest) // 2]] if self.task.refine else []  # room for what is carried along
                self._open([*carried, longest], self.task.further).cache.drop()
                return found
            except TooLong:
                if self._most <= LEAST:
                    raise
                self._most //= 2

    def _ask(self, texts: Sequence[str], instruction: str, tokens: int) -> Steps[str]:
        """An answer of at most so many ``tokens``, and of half a section: two of them can be read together."""
        work = self._open(texts, instruction)
        most = min(work.plan.answer_tokens, tokens, self._most // 2)
        work.plan = replace(work.plan, answer_tokens=max(1, most))
        return (yield from self.say(Begun(work)))

    def _open(self, texts: Sequence[str], instruction: str, keep: bool = False) -> Work:
        return self._opener.open([self.held], texts, instruction, keep=keep, of=Conversation(form=AS_IT_IS))

    def _tokens(self, text: str) -> int:
        if self._cancelled():
            raise Cancelled
        return len(self._opener.model.tokenizer.encode(text))

    def _count(self, work: Work) -> int:
        """Count what was read and said, also of passages that were ranked; the tokens that were dropped."""
        dropped = round(sum((e.stop - e.start) * (1 - e.kept) for e in work.evicted))
        self._spent.update(generated=sum(map(len, work.answers)), dropped=dropped)
        for one in {id(w): w for w in (*work.ranked, work)}.values():
            self._spent.update(prompt=len(one.tokens), reused=one.plan.reused, prefilled=one.read)
        return dropped


def cited(held: Held, said: str, told: Sequence[_Told]) -> list[dict[str, Any]]:
    """For each sentence of the summary ``said`` the words of the document that support it best, if any; ``at`` is where
    in the summary it ends.

    No model is asked to carry page numbers along, which small ones garble: the sentence leads to the sections whose
    summaries say it, these to their text, and that to its page.
    """
    (row, text, spans), found = held, list[dict[str, Any]]()
    page, heading = (labels(spans, kind) for kind in ("page", "heading"))
    summaries = [_passage(str(i), row.name, 0, words) for i, (_, words) in enumerate(told)]
    for start, end in sentences(said, 0, len(said)):
        near = [told[int(quote.document)].section for quote in quotes(said[start:end], "", summaries)[:NEAR]]
        parts = [_passage(row.id, row.name, s.start, text[s.start : s.end]) for s in near]
        for c in quotes(said[start:end], "", parts)[:1]:
            if c.weight >= SUPPORT:
                found.append({**asdict(c), "page": page(c.start), "heading": heading(c.start), "at": end})
    return found


def _passage(document: str, name: str, start: int, text: str) -> Passage:
    return Passage(document, name, start, start + len(text), text, None, None, 0.0, {})


def finished(text: str) -> str:
    """A text that was cut, up to its last whole sentence; as it is where there is none."""
    *whole, cut = sentences(text, 0, len(text)) if text else [(0, 0)]
    return text[: whole[-1][1]] if whole and text[cut[1] - 1] not in ENDS else text
