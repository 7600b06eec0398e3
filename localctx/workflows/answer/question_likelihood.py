"""Computes how likely a question is after a text, which shows whether the text answers the question.

Passages are ranked by this likelihood (arXiv:2204.07496). If the question is not likelier after a text than without it,
the text does not answer the question.
"""

import re

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.decoding.prefill_decode import likelihood
from localctx.engine.prompt import Conversation
from localctx.engine.prompt_wording import AS_IT_IS
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import close_request
from localctx.store.search_words import SIGNS

# nats by which a passage must make a question likelier; the smaller of both limits applies
MIN_GAIN, MIN_GAIN_PER_TOKEN = 8.0, 0.5
MIN_REPEATED = 4  # words of a question that is removed from a text; two Chinese characters count as a word


def question_alone(builder: RequestBuilder, question: str) -> Request:
    """Build a request with ``question`` alone, without a passage, to compute how likely the question is by itself."""
    only_question = Conversation(form=AS_IT_IS)
    return builder.build([], [], question, persist=False, part="question", conversation=only_question)


def likelihood_alone(builder: RequestBuilder, question: str) -> EngineCoroutine[tuple[float, int]]:
    """Compute how likely ``question`` is without any passage. Returns its log-likelihood, in nats, and the number of
    its tokens.
    """
    request = question_alone(builder, question)
    ranking = request.prompt.ranking
    assert ranking, "a part is ranked"
    try:
        alone = yield from likelihood(request.cache, ranking.tokens, ranking.question)
    finally:
        close_request(request)
    return alone, question_tokens(request)


def is_likelier(gain: float, tokens: int) -> bool:
    """Returns True if a passage answers a question of ``tokens`` tokens. ``gain`` is the log-likelihood of the question
    after the passage, minus the log-likelihood without the passage, in nats.
    """
    return gain > min(MIN_GAIN, MIN_GAIN_PER_TOKEN * tokens)


def question_tokens(alone: Request) -> int:
    """Returns the number of tokens of the question in a request that ``question_alone`` built."""
    assert alone.prompt.ranking, "a part is ranked"
    return len(alone.prompt.ranking.tokens) - alone.prompt.ranking.question


def without_question(text: str, question: str) -> str:
    """Returns ``text`` without repetitions of ``question``.

    A question is always likely after its own words, even if the text does not answer it. A short question ("Notice
    period?") may be a term of the text, so it stays.
    """
    words = re.findall(r"\w+", question)
    if len(words) + len(re.findall(f"[{SIGNS}]", question)) // 2 < MIN_REPEATED:
        return text
    repeated = r"\W+".join(map(re.escape, words))
    return re.sub(rf"(?<!\w){repeated}(?!\w)\??", "", text, flags=re.IGNORECASE)
