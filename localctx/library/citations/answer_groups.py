"""Groups and counts the equal answers of many passages to one question, and lists each group with the places of its
answers in the documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localctx.document_parts import Citation, tell_place
from localctx.library.wording.sentences import ENDS
from localctx.library.wording.words import split_words

MAX_PLACES = 12  # places listed for one group; its citations have all of them
MAX_SENTENCE = 200  # characters
_ARTICLES = frozenset({"a", "an", "the"})


@dataclass(frozen=True)
class AnswerGroup:
    """The equal answers of several passages to one question.

    ``answer`` has the words of the first of these answers. ``citations`` are indices into the list of all citations.
    """

    answer: str
    citations: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of passages that gave this answer."""
        return len(self.citations)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields and the ``count`` as JSON."""
        return {"answer": self.answer, "count": self.count, "citations": list(self.citations)}


def group_answers(answers: Sequence[str]) -> list[AnswerGroup]:
    """Group those ``answers`` that are equal except for case, articles and punctuation.

    ``answers`` are in text order. The largest groups come first; groups of one size are in text order.
    """
    groups = dict[str, list[int]]()
    for i, answer in enumerate(answers):
        groups.setdefault(_normalized(answer), []).append(i)
    found = [AnswerGroup(answers[indices[0]].strip(), tuple(indices)) for indices in groups.values()]
    return sorted(found, key=lambda group: -group.count)


def describe_groups(
    groups: Sequence[AnswerGroup],
    citations: Sequence[Citation],
    sentences: Sequence[str],
    lengths: Mapping[str, int],
    asked: int,
) -> str:
    """Returns groups of answers as text: a first line with the number of groups, then a line for each group.

    ``sentences`` are the sentences around the ``citations``, in the same order. ``lengths`` has the number of
    characters of each document by its id. ``asked`` is the number of passages that were asked.
    """
    said, different = len(citations), len(groups)
    names = len({citation.document for citation in citations}) > 1
    head = f"{said:,} of {asked:,} passages answer{'s' if said == 1 else ''} this"
    head += "." if said == 1 else f", {'all the same' if different == 1 else f'with {different:,} different answers'}:"
    lines = [
        f"{i}. {_with_sentence(group.answer, sentences[group.citations[0]])} "
        f"({_places(group, citations, lengths, names)})"
        for i, group in enumerate(groups, 1)
    ]
    return "\n".join([head, "", *lines])


def describe_unsure(citations: Sequence[Citation], lengths: Mapping[str, int]) -> str:
    """Returns passages that probably answer the question as text: a first line with the number of passages, then a line
    with the cited sentence of each passage. ``lengths`` has the number of characters of each document by its id.
    """
    names, more = len({citation.document for citation in citations}) > 1, len(citations) - MAX_PLACES
    head = f"{len(citations):,} passage{'s' * (len(citations) > 1)} may answer it, but no answer is sure:"
    lines = [f'- "{_cut(c.quote)}" ({place_of(c, lengths[c.document], names)})' for c in citations[:MAX_PLACES]]
    return "\n".join([head, "", *lines, *([f"- and {more:,} more"] if more > 0 else [])])


def place_of(citation: Citation, length: int, with_name: bool) -> str:
    """Returns the place where a citation begins, as text: its page or, without pages, a percentage of the text's
    ``length`` in characters.

    If ``with_name``, the document's name comes first.
    """
    share = 100 * citation.start // max(1, length)
    where = tell_place(citation.page, citation.heading) if citation.page else f"{share} %"
    return f"{citation.name}, {where}" if with_name else where


def _places(group: AnswerGroup, citations: Sequence[Citation], lengths: Mapping[str, int], with_name: bool) -> str:
    places = [place_of(c, lengths[c.document], with_name) for c in (citations[i] for i in group.citations)]
    told = "; ".join(dict.fromkeys(places[:MAX_PLACES]))
    more = f"; and {len(places) - MAX_PLACES:,} more" if len(places) > MAX_PLACES else ""
    of_text = "" if citations[group.citations[0]].page else " of the text"
    return (f"{group.count:,} passages: " if group.count > 1 else "") + told + of_text + more


def _with_sentence(answer: str, sentence: str) -> str:
    """Returns the answer in one line, and the sentence around it if that says more."""
    line, around = " ".join(answer.split()), " ".join(sentence.split())
    if _normalized(around) in _normalized(line):
        return line
    return f'{line}{"" if line[-1:] in ENDS else ":"} "{_cut(around)}"'


def _cut(sentence: str) -> str:
    line = " ".join(sentence.split())
    return line if len(line) <= MAX_SENTENCE else line[:MAX_SENTENCE].rsplit(None, 1)[0] + " ..."


def _normalized(answer: str) -> str:
    return " ".join(word for word in split_words(answer) if word not in _ARTICLES) or answer.strip()
