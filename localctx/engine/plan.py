"""The plan: what reading a prompt will cost, and a refusal with the numbers where it cannot be done."""

from pathlib import Path

from localctx.budget import measure_device
from localctx.engine.cache_plan import CachePlan
from localctx.engine.events import Planned
from localctx.errors import ModelError, TooLong, format_bytes
from localctx.models.base import Model
from localctx.models.device_choice import pick_device, pick_dtype
from localctx.models.load import loading_bytes
from localctx.models.weight_formats import refuse_weights
from localctx.settings import Settings
from localctx.shape import PAGE, SINKS, KVShape


def refuse_too_long(tokens: int, context: float, model: str, about: str = "") -> None:
    """Raises TooLong for a prompt that leaves ``model`` no room to answer; ``about``: they are guessed."""
    if tokens >= context:
        raise TooLong(
            f"the documents and the question are {about}{tokens:,} tokens, and {model} reads at most {context:,}",
            "ask a shorter part, choose a model with a longer window (localctx models list), or see only the end of "
            "them with --keep sink-window",
        )


def refuse_too_big(folder: Path, settings: Settings) -> None:
    """Raises ModelError for weights that the device has no room for now, other processes' use counted."""
    device = pick_device(settings.device)
    dtype = pick_dtype(settings.dtype, device)
    refuse_weights(settings.weights, device, dtype)
    need = loading_bytes(folder, device, dtype, settings.weights)
    free = measure_device(str(device)).free
    if need > free:
        raise ModelError(
            f"{settings.model} takes {need / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free",
            "close programs, choose a smaller model (localctx models list), or see localctx plan",
        )


def plan(
    model: Model, memory: CachePlan, *, tokens: int, reused: int, answer: int, per_second: float | None
) -> Planned:
    """The plan for a prompt of ``tokens``, ``reused`` of them kept, and an answer of at most ``answer`` tokens.

    ``per_second`` is the measured rate of prefill. Raises TooLong where no tier has room for what must be held.
    """
    keeper, shape = memory.keeper, model.shape
    if not keeper.unbounded_positions:
        answer = min(answer, model.context - tokens)
    held = keeper.max_tokens_held(tokens + answer)
    kv_bytes = shape.cache_bytes(
        memory.codec, held + (0 if keeper.pages_may_persist else memory.chunk), model.dtype.itemsize
    )
    if keeper.unbounded_positions and held < tokens + answer:
        kv_bytes += SINKS * shape.page_bytes(memory.codec, sinks=True)  # as they were read, and turned
    fresh = kv_bytes - reused // PAGE * shape.page_bytes(memory.codec)
    seconds = (tokens - reused) / per_second if per_second else None
    return Planned(
        mode="full",
        reason=_reason(model, memory, tokens, held),
        tokens=tokens,
        reused=reused,
        kv_bytes=kv_bytes,
        seconds=seconds,
        answer_tokens=answer,
        window=model.context,
        codec=memory.codec,
        keeper=keeper.name,
        unusual=held < tokens or model.context > model.trained,
        tiers=_placed(max(0, fresh), memory, shape, tokens + answer),
    )


def _reason(model: Model, memory: CachePlan, tokens: int, held: int) -> str:
    if held < tokens:
        return f"{memory.keeper.name} keeps about {held:,} of the tokens at a time"
    if model.context > model.trained:
        return f"the documents fit the model's window, stretched from {model.trained:,} to {model.context:,} tokens"
    return "the documents fit the model's window"


def _placed(need: int, memory: CachePlan, shape: KVShape, tokens: int) -> dict[str, int]:
    """How ``need`` bytes will lie, the device first. Raises TooLong."""
    placed, left = dict[str, int](), need
    rooms = vars(memory.limits)
    for tier, limit in rooms.items():
        placed[tier] = left if limit is None else min(left, limit)
        left -= placed[tier]
    if left > 0:
        room = ", ".join(f"{format_bytes(n)} of {tier}" for tier, n in rooms.items() if n is not None)
        smaller = "" if memory.codec == "int4" else ", try a smaller --kv (localctx quality says what it costs)"
        raise TooLong(
            f"remembering {tokens:,} tokens takes {format_bytes(need)} of KV; there are {room}",
            f"close other programs, raise --memory, --ram or --disk{smaller}, or ask a shorter part",
        )
    return placed
