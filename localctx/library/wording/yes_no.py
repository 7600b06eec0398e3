"""Recognizes answers that begin with yes or no, in several languages. Sources do not contain that word."""

import re

_YES = "yes|yeah|yep|jawohl|ja|oui|sí|sì|sim|да"
_NO = "no|nope|nein|doch|nee|non|si|não|нет|tak|nie"
_WITHOUT_SPACES = (  # longer words first
    "不可以|不允许|不需要|不可|不能|不会|不行|不用|不是|不对|不必|没有|沒有|可以|允许|需要|是的|对的|能|会|是|有|对|對|行|"
    "不|否|没|はい|いいえ|네|예|아니요|아니오"
)
_PRONOUN = r"(?:it|they|he|she|you|we|i|there|this|that)\b"
_YES_OR_NO = re.compile(
    rf"[\W_]*(?:"
    rf"(?:{_YES}|{_NO})\b(?:[\W_]*$|\s*[,;:!(]|\s*\.(?!\s*\d)|\s+[-–—]\s|\s+(?={_PRONOUN}))"  # noqa: RUF001
    rf"|(?:{_YES})\b\s+"
    rf"|(?:{_WITHOUT_SPACES})(?:[\W_]*$|\s*[,;:!(，。；：！（、—]))"  # noqa: RUF001
    r"[\W_]*",
    re.IGNORECASE,
)


def clause_after(answer: str) -> str | None:
    """Returns the text after the yes or no that ``answer`` begins with; "" if nothing follows.

    Returns None if it does not begin so, as "No pets are allowed" and "No. 5".
    """
    found = _YES_OR_NO.match(answer)
    return answer[found.end() :] if found else None
