"""Decides whether a question about several documents is asked about each of them: if it compares them, if it asks for
their differences, or if it is a plain question that each of them may answer.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from localctx.library.tables.question_words import wanted
from localctx.library.wording.identify_language import language_of
from localctx.library.wording.word_forms import content_forms, word_forms
from localctx.store.documents import StoredDocument
from localctx.workflows.answer.question_kind import asks_of_the_whole, is_instruction
from localctx.workflows.comparing.comparing_question import FEWEST, MOST, comparing_question
from localctx.workflows.comparing.rules import ComparingQuestion
from localctx.workflows.comparing.subjects import SUBJECTS, content_of
from localctx.workflows.comparing.wording import WORDINGS

ALIKE = 0.12  # Jaccard index of the content words: 0.12 to 0.3 for two leases, below 0.1 for a lease and a novel
_COMPARED_CHARACTERS = 20_000  # of each document, to tell whether two are alike
_MOST_CHARACTERS = 200
_DIFFERENCES = re.compile(
    r"(?:what (?:are|is) |list |show (?:me )?|tell me )?(?:the |their )?(?:main |key |most important |biggest |"
    r"important )?differences?(?: (?:between|of|in) .{1,40})?|how do (?:they|these|those|the .{1,30}) differ|"
    r"(?:please )?compare (?:them|both|the .{1,30}|these .{1,30}|those .{1,30})",
    re.IGNORECASE,
)
_DOCUMENTS = r"(?: (?:documents|leases|contracts|agreements|offers|policies|plans))?"
_ALL_DO = re.compile(
    rf"do (?:they both|both(?: of (?:them|the \w+))?|all of (?:them|these|those|the \w+)){_DOCUMENTS} "
    r"(?P<verb>allow|permit|include|cover|contain|mention|require|need|offer|charge|have) (?P<rest>.{2,80})",
    re.IGNORECASE,
)
_WHICH_ALLOWS = re.compile(
    rf"which (?:of (?:them|the|these|those)(?: two| three| four| five| six)?{_DOCUMENTS}|"
    r"one|document|lease|contract|agreement|offer|policy|plan) (?P<verb>allow|permit|include|cover)s? "
    r"(?!.*\b(?:to|that|and|or|not|no|than|more|less|of|neither|nor|him|her|me|us|you|which)\b)"
    r"(?P<noun>\w+(?: \w+){0,2})",
    re.IGNORECASE,
)
_DIFFERING = ("rent", "interest", "deposit", "start", "end", "term", "notice", "area", "salary")
_MOST_DIFFERENCES = 6
# questions that refer back, name the documents, or look for the extreme among all
_ASKED_TOGETHER = re.compile(
    r"\W*(?:and|but|so|why not|what about|how about|which of)\b|"
    r".*\b(?:he|she|they|this|that|these|those|both|either|neither)\b|"
    r".*\bwhich\b.*\b(?:\w+est|most|least)\b|.*\b(?:documents?|files?)\b",
    re.IGNORECASE,
)


def asked_of_each(question: str, documents: Sequence[StoredDocument]) -> ComparingQuestion | None:
    """Returns what is asked of each of ``documents``, or None if they are asked together."""
    asked = comparing_question(question, len(documents))
    if asked and not (asked.implied and _about(asked, documents) < FEWEST):
        return asked
    if not FEWEST <= len(documents) <= MOST or len(question) > _MOST_CHARACTERS:
        return None
    stripped = question.strip(" \t\n.?!")
    if _DIFFERENCES.fullmatch(stripped):
        return _differences(documents)
    if all_do := _ALL_DO.fullmatch(stripped):
        return _doing(all_do["verb"], all_do["rest"], documents)
    which = _WHICH_ALLOWS.fullmatch(stripped)
    return _allowing(which["verb"].lower(), which["noun"], documents) if which else _plain(question, documents)


def _allowing(verb: str, noun: str, documents: Sequence[StoredDocument]) -> ComparingQuestion | None:
    """Returns the question for "which of them allows pets": "Are pets allowed?". None if no document has the noun."""
    several = noun.endswith("s") and not noun.endswith(("ss", "us", "is", "gas"))
    done = "allowed" if verb in ("allow", "permit") else "included"
    asked = ComparingQuestion(
        "en", f"{'Are' if several else 'Is'} {noun} {done}?", "none", content_of(noun), implied=True
    )
    return asked if _about(asked, documents) else None


def _doing(verb: str, rest: str, documents: Sequence[StoredDocument]) -> ComparingQuestion | None:
    """Returns the question for "do both include pets": "Does it include pets?". None if no document is about it."""
    asked = ComparingQuestion("en", f"Does it {verb} {rest}?", "none", content_of(rest), implied=True)
    return asked if _about(asked, documents) else None


def _differences(documents: Sequence[StoredDocument]) -> ComparingQuestion | None:
    """Returns questions about the known subjects of at least two documents; None if there are none."""
    questions = [
        ComparingQuestion("en", SUBJECTS[name].plain["en"], "none", SUBJECTS[name], implied=True, noun=name)
        for name in _DIFFERING
    ]
    known = [asked for asked in questions if _about(asked, documents) >= FEWEST][:_MOST_DIFFERENCES]
    return replace(known[0], others=tuple(known[1:])) if known else None


def _plain(question: str, documents: Sequence[StoredDocument]) -> ComparingQuestion | None:
    """Returns a plain question, which each document may answer. It names none of the documents, and either several of
    them have its words, or two of them are alike.
    """
    if not question.rstrip().endswith(("?", "？")) or _ASKED_TOGETHER.match(question):  # noqa: RUF001
        return None
    subject, language = content_of(question), language_of(question) or "en"
    if is_instruction(question) or asks_of_the_whole(question) or not subject.words:
        return None
    if wanted(question).computes and any(span.kind == "row" for document in documents for span in document.spans):
        return None
    if _names_one(question, documents, proper=language != "de"):
        return None
    wording = language if language in WORDINGS else "en"
    asked = ComparingQuestion(wording, question.strip(), "none", subject, implied=True)
    return asked if _about(asked, documents) >= FEWEST or are_alike(documents) else None


def _about(asked: ComparingQuestion, documents: Sequence[StoredDocument]) -> int:
    return sum(asked.subject.is_in(document.text) for document in documents)


def _names_one(question: str, documents: Sequence[StoredDocument], proper: bool) -> bool:
    """Returns True if a content word of the question is in the names of some documents, but not in all names. If
    ``proper``, capitalized words are proper names; then also returns True if the text of some documents has one.
    """
    asked = [word for word in word_forms(question) if word.is_content and not word.is_number]
    names = [{word.word for word in word_forms(document.name)} for document in documents]
    if any(0 < sum(word.word in name for name in names) < len(names) for word in asked):
        return True
    capitalized = [question[w.start : w.end] for w in asked if proper and w.start and question[w.start].isupper()]
    return any(0 < sum(name in document.text for document in documents) < len(documents) for name in capitalized)


def are_alike(documents: Sequence[StoredDocument]) -> bool:
    """Returns True if two documents share many content words, as two leases do (Jaccard index of their forms). Numbers
    do not count.
    """
    texts = [document.text[:_COMPARED_CHARACTERS] for document in documents]
    forms = [{form for form in content_forms(text) if not form[0].isdigit()} for text in texts]
    return any(len(a & b) >= ALIKE * len(a | b) > 0 for a, b in combinations(forms, 2))
