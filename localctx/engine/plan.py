"""The plan: what reading a prompt will cost, and a refusal with the numbers where it cannot be done."""

from collections.abc import Callable

from localctx.budget import Measured
from localctx.engine.events import Planned
from localctx.errors import TooLong
from localctx.shape import FORMATS, PAGE, KVShape


def refuse_too_long(tokens: int, context: int, model: str, about: str = "") -> None:
    """Raises TooLong for a prompt that leaves ``model`` no room to answer; ``about``: they are guessed."""
    if tokens >= context:
        raise TooLong(
            f"the documents and the question are {about}{tokens:,} tokens, and {model} reads at most {context:,}",
            "ask a shorter part, or choose a model with a longer window: localctx models list",
        )


def plan(
    *,
    tokens: int,
    reused: int,
    context: int,
    shape: KVShape,
    codec: str,
    answer: int,
    free: Measured,
    per_second: float | None,
) -> Planned:
    """The plan for a prompt of ``tokens``, ``reused`` of them kept, and an answer of at most ``answer`` tokens.

    ``free`` is the memory of the device; ``per_second`` the measured rate of prefill. Raises TooLong.
    """
    answer = min(answer, context - tokens)
    kv_bytes = -(-(tokens + answer) // PAGE) * shape.page_bytes(codec)
    if kv_bytes > free.free:
        raise TooLong(
            f"remembering {tokens + answer:,} tokens takes {kv_bytes >> 20:,} MiB; {free.free >> 20:,} MiB are free",
            "close other programs, use --kv int8, or ask a shorter part",
        )
    seconds = (tokens - reused) / per_second if per_second else None
    return Planned("full", "the documents fit the model's window", tokens, reused, kv_bytes, seconds, answer)


_TRUSTED = ("int8", "bf16", "f32")  # used until measured to be too coarse


def choose_codec(shape: KVShape, verdict_of: Callable[[str], bool | None]) -> str:
    """The smallest codec that passed the quality gate; int8 until it is measured. f32 where nothing passed.

    ``verdict_of`` tells whether a codec passed, None where it was never measured.
    """
    verdicts = {codec: verdict_of(codec) for codec in FORMATS}
    good = [c for c, v in verdicts.items() if v or (v is None and c in _TRUSTED)]
    return min(good, key=shape.bytes_per_token, default="f32")
