"""Compares two versions of a document clause by clause. No model is needed."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from localctx.library.compare.align import ClausePair, align
from localctx.library.compare.clause_numbers import REFERENCE
from localctx.library.compare.clauses import Clause, cut_alike
from localctx.library.compare.comparison import (
    MEANINGS,
    STATES,
    ChangeState,
    ClauseChange,
    ClauseVersion,
    ComparedFile,
    Comparison,
    WordChange,
)
from localctx.library.compare.meaning import Meanings, WordRun
from localctx.library.compare.page_lines import without_page_lines
from localctx.library.compare.word_changes import changed_runs
from localctx.library.wording.identify_language import language_of
from localctx.library.wording.sentences import ENDS
from localctx.store.documents import StoredDocument, labels, part_labels

_NEAR = 2_000  # characters of each version from which the language of a clause is told
_ORDER = (*MEANINGS, *STATES)


def compare_documents(old: StoredDocument, new: StoredDocument) -> Comparison:
    """Returns the changes from ``old`` to ``new``.

    Clauses are equal if their words are equal; their form makes no difference (see ``compared_words``).
    """
    return _Comparing(old, new).result()


class _Comparing:
    """Compares two documents: finds the pairs of clauses first, then the changes in each pair."""

    def __init__(self, old: StoredDocument, new: StoredDocument) -> None:
        self._documents = old, new
        (old, old_lines), (new, new_lines) = without_page_lines(old), without_page_lines(new)
        self._page_lines = old_lines, new_lines
        self._clauses = cut_alike(old, new)
        self._pairs = align(*self._clauses)
        self._meanings = Meanings([*self._clauses[0], *self._clauses[1]])
        self._versions = _Versions(old), _Versions(new)
        self._languages = dict[int, str | None]()
        self._references = 0

    def result(self) -> Comparison:
        """Returns the comparison, with the changes in order."""
        changes = [*self._changed(), *self._alone("inserted"), *self._alone("deleted"), *self._moved()]
        changes.sort(key=lambda change: _ORDER.index(change.meaning or change.state))
        files = [
            ComparedFile(d.id, d.name, d.row.path, len(clauses), lines, d.row.unread_lines)
            for d, clauses, lines in zip(self._documents, self._clauses, self._page_lines, strict=True)
        ]
        renumbered, equal = tuple(dict.fromkeys(self._renumbered)), sum(self._is_equal(pair) for pair in self._pairs)
        return Comparison(files[0], files[1], tuple(changes), renumbered, self._references, equal)

    def _of(self, pair: ClausePair) -> tuple[list[Clause], list[Clause]]:
        return [self._clauses[0][i] for i in pair.old], [self._clauses[1][j] for j in pair.new]

    def _is_equal(self, pair: ClausePair) -> bool:
        old, new = self._of(pair)
        return [key for clause in old for key in clause.keys] == [key for clause in new for key in clause.keys]

    @cached_property
    def _renumbered(self) -> list[tuple[str, str]]:
        """The (old, new) numbers of clauses whose number changed."""
        found = list[tuple[str, str]]()
        for pair in self._pairs:
            old, new = ([clause.number for clause in side[:1]] for side in self._of(pair))
            if old and new and (a := old[0]) != (b := new[0]) and (not a or not b or a.values != b.values):
                found.append((a.printed if a else "", b.printed if b else ""))
        return found

    def _changed(self) -> Iterator[ClauseChange]:
        for pair in self._pairs:
            if pair.old and pair.new and not self._is_equal(pair):
                old, new = self._of(pair)
                words = [w for runs in changed_runs(old, new) if (w := self._word_change(*runs, pair))]
                if words:
                    meaning = min((word.meaning for word in words), key=_ORDER.index)
                    versions = self._versions[0].of(old), self._versions[1].of(new)
                    yield ClauseChange("changed", *versions, tuple(words), meaning, pair.moved)

    def _word_change(self, old: WordRun, new: WordRun, pair: ClausePair) -> WordChange | None:
        """Returns a change of words; None if the words are only a reference to a clause whose number changed."""
        if self._follows_number(old, new):
            self._references += 1
            return None
        return WordChange(old.text, new.text, self._meanings.of(old, new, self._language(pair)))

    def _follows_number(self, old: WordRun, new: WordRun) -> bool:
        numbers = {(_bare(a), _bare(b)) for a, b in self._renumbered}
        return (_bare(old.text), _bare(new.text)) in numbers and all(
            REFERENCE.search(run.clause[: run.start]) for run in (old, new)
        )

    def _language(self, pair: ClausePair) -> str | None:
        """Returns the language of the text around a pair."""
        old, new = (side[0].start for side in self._of(pair))
        near = new // _NEAR
        if near not in self._languages:
            texts = [
                d.text[max(0, at - _NEAR // 2) : at + _NEAR] for d, at in zip(self._documents, (old, new), strict=True)
            ]
            self._languages[near] = language_of("\n".join(texts))
        return self._languages[near]

    def _alone(self, state: ChangeState) -> Iterator[ClauseChange]:
        """Yields the clauses that only one version has. Clauses of one paragraph are yielded together."""
        is_new = state == "inserted"
        clauses = self._clauses[is_new]
        places = [pair.new if is_new else pair.old for pair in self._pairs if not (pair.old and pair.new)]
        for group in _in_a_row([p[0] for p in places if p], lambda a, b: _in_one_paragraph(clauses[a], clauses[b])):
            version = self._versions[is_new].of([clauses[i] for i in group])
            yield ClauseChange(state, None, version) if is_new else ClauseChange(state, version, None)

    def _moved(self) -> Iterator[ClauseChange]:
        """Yields the clauses that have the same words in another place. Clauses that moved together are one change."""
        pairs = {pair.new[0]: pair for pair in self._pairs if pair.moved and self._is_equal(pair)}
        for group in _in_a_row(list(pairs), lambda a, b: pairs[a].old[-1] + 1 == pairs[b].old[0]):
            old, new = ([c for at in group for c in self._of(pairs[at])[side]] for side in (0, 1))
            yield ClauseChange("moved", self._versions[0].of(old), self._versions[1].of(new), moved=True)


class _Versions:
    """Describes clauses of one document by their places."""

    def __init__(self, document: StoredDocument) -> None:
        self._text = document.text
        self._page, self._heading = part_labels(document.spans), labels(document.spans, "heading")

    @cached_property
    def _paragraphs(self) -> list[int]:
        """The positions of the lines with text."""
        positions, at = list[int](), 0
        for line in self._text.splitlines(keepends=True):
            positions += [at] if line.strip() else []
            at += len(line)
        return positions

    def of(self, clauses: Sequence[Clause]) -> ClauseVersion:
        """Returns one ClauseVersion for ``clauses``, which follow one another."""
        start, end = clauses[0].start, clauses[-1].end
        text, number = " ".join(self._text[start:end].split()), clauses[0].number
        paragraph = bisect_right(self._paragraphs, start)
        printed = number.printed if number else ""
        return ClauseVersion(text, self._page(start), self._heading(start), paragraph, printed, start, end)


def _in_a_row(places: list[int], belongs: Callable[[int, int], bool]) -> Iterator[list[int]]:
    """Yields runs of consecutive numbers from ``places``. A run goes on only if ``belongs`` returns True for a number
    and the next one.
    """
    group = list[int]()
    for place in places:
        if group and (place != group[-1] + 1 or not belongs(group[-1], place)):
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def _in_one_paragraph(first: Clause, second: Clause) -> bool:
    """Returns True for clauses on one line, and for clauses on two adjacent lines if the first one ends as a sentence
    does. A clause with a number begins a new paragraph.
    """
    gap = first.text[first.end : second.start]
    goes_on = "\n" not in gap or (gap == "\n" and first.words[-1].key in ENDS)
    return goes_on and not second.number


def _bare(number: str) -> str:
    """Returns the number of a clause without its name and brackets."""
    return number.rpartition(" ")[2].strip("()[]§.: ")
