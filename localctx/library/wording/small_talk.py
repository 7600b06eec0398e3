"""Recognizes greetings, thanks and praise, which no document answers."""

import re

_SO = r"(?:very |really |so |quite |most )?"
_GOOD = "good|great|nice|cool|perfect|excellent|wonderful|awesome|amazing|brilliant|fantastic|lovely|super|interesting"
_MAX_WORDS = 20
_PHRASES = (
    r"(?:hello|hi|hey|hiya|howdy|greetings)(?: there| again| everyone)?",
    "good (?:morning|afternoon|evening|night|day)",
    "how are you(?: today| doing)?|nice to meet you|what's up",
    r"(?:many )?(?:thanks|thank you|thx|cheers)(?: a lot| so much| very much| again| indeed| anyway)?"
    r"(?: for (?:your|the|that|this|all your) (?:help|answers?|time|information|explanation|summary))?",
    r"ok(?:ay)?(?: then)?|all ?right(?: then)?|right|fine|sorry|oh|ah|aha|wow|hm+|well",
    f"{_SO}(?:{_GOOD})",
    "i see|got it|i got it|understood|i understand|noted|(?:that )?makes sense|fair enough",
    "well done|(?:good|great|nice) (?:job|work|answer|one)",
    rf"(?:that|this|it)(?: is|'s| was) {_SO}(?:{_GOOD}|helpful|useful|clear|right|correct|fine|funny|all|enough)",
    "(?:that|this) help(?:s|ed)(?: a lot| me)?|that will be all|that's all for (?:now|today)",
    rf"you(?: are|'re) {_SO}(?:{_GOOD}|helpful|kind|right|welcome|the best)",
    "no (?:problem|worries)|never ?mind|don't mention it",
    "(?:good)?bye|see you(?: later| soon| tomorrow)?|take care|have a (?:good|great|nice) (?:day|evening|night)",
)
_SMALL_TALK = re.compile(rf"(?:(?:{'|'.join(_PHRASES)})(?: |$))+")


def is_small_talk(text: str) -> bool:
    """Returns True for a text that has only common phrases of greeting, thanks, assent or praise.

    Also returns True for punctuation without words, unless it has a question mark. No document answers such a text, and
    a search finds nothing. Any other text may be a question.
    """
    words = re.findall(r"[^\W_]+(?:'[^\W_]+)*", text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    if not words:
        return "?" not in text and bool(text.strip())
    return len(words) <= _MAX_WORDS and bool(_SMALL_TALK.fullmatch(" ".join(words)))
