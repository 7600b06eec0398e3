"""Recognizes answers that begin with yes or no, in several languages. Sources do not contain that word."""

import re

from localctx.library.wording.word_forms import content_forms

_YES = "yes|yeah|yep|jawohl|ja|oui|sí|sì|sim|да"
_YES_BEFORE_SIGN = "si|tak|doch"  # they mean something else before a word
_NO = "no|nope|nein|nee|non|não|нет|nie"
_YES_UNSPACED = "可以|允许|需要|是的|对的|能|会|是|有|对|對|行|はい|네|예"  # in scripts without spaces
_NO_UNSPACED = "不可以|不允许|不需要|不可|不能|不会|不行|不用|不是|不对|不必|没有|沒有|不|否|没|いいえ|아니요|아니오"
_WITHOUT_SPACES = f"{_NO_UNSPACED}|{_YES_UNSPACED}"
_PRONOUN = r"(?:it|they|he|she|you|we|i|there|this|that)\b"
_YES_OR_NO = re.compile(
    rf"[\W_]*(?:"
    rf"(?:{_YES}|{_YES_BEFORE_SIGN}|{_NO})\b(?:[\W_]*$|\s*[,;:!(]|\s*\.(?!\s*\d)|\s+[-–—]\s|\s+(?={_PRONOUN}))"  # noqa: RUF001
    rf"|(?:{_YES})\b\s+"
    rf"|(?:{_WITHOUT_SPACES})(?:[\W_]*$|\s*[,;:!(，。；：！（、—]))"  # noqa: RUF001
    r"[\W_]*",
    re.IGNORECASE,
)
_YES_WORD = re.compile(rf"[\W_]*(?:(?:{_YES}|{_YES_BEFORE_SIGN})\b|{_YES_UNSPACED})", re.IGNORECASE)


def starts_with_yes(answer: str) -> bool | None:
    """Returns True if ``answer`` begins with yes, False if it begins with no, and None otherwise."""
    return None if clause_after(answer) is None else bool(_YES_WORD.match(answer))


def clause_after(answer: str) -> str | None:
    """Returns the text of ``answer`` after the yes or no at its start; "" if nothing follows.

    Returns None if ``answer`` does not begin with yes or no; "No pets are allowed" and "No. 5" do not.
    """
    found = _YES_OR_NO.match(answer)
    return answer[found.end() :] if found else None


def without_repeated_clause(answer: str, question: str) -> str:
    """Returns only the yes or no of an ``answer`` whose clause adds no content word to those of the ``question``.

    "Yes, keep a dog." to "May I keep a dog?" becomes "Yes.", and so does "Yes, in it."; other answers are returned
    unchanged.
    """
    clause = clause_after(answer)
    if not clause or not content_forms(clause) <= content_forms(question):
        return answer
    return only_yes_or_no(answer)


def only_yes_or_no(answer: str) -> str:
    """Returns the yes or no at the start of ``answer``, as a sentence."""
    return answer.removesuffix(clause_after(answer) or "").strip(" ,;:.!(-–—，；：。！（、") + "."  # noqa: RUF001
