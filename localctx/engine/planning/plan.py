"""Plans a prompt before prefill: its cost, or a refusal with numbers if it does not fit."""

from pathlib import Path

from localctx.budget import measure_device, measure_ram
from localctx.engine.events import Planned
from localctx.engine.planning.cache_plan import CachePlan
from localctx.errors import ModelError, TooLong, UsageError, format_bytes
from localctx.models.adapter_folders import adapter_bytes, find_adapter
from localctx.models.base import PagedModel
from localctx.models.choice.device_choice import pick_device, pick_dtype
from localctx.models.files.gguf_file import open_gguf
from localctx.models.llama_cpp.model import llama_device
from localctx.models.load import loading_bytes
from localctx.models.memory_fit import MemoryNeed
from localctx.models.quantized.weight_formats import refuse_weights
from localctx.settings import Settings
from localctx.shape import FULL, PAGE

QUESTION, MESSAGES, RAW = "the documents and the question are", "the messages are", "the prompt is"
_SHORTER = {
    QUESTION: "ask a shorter part, choose a model with a longer window (localctx models list), or see only the end of "
    "them with --keep sink-window",
    MESSAGES: "send fewer or shorter messages, or use a model with a longer window",
    RAW: "send a shorter prompt, or use a model with a longer window",
}


def refuse_too_long(tokens: int, context: float, model: str, about: str = "", what: str = QUESTION) -> None:
    """Raise TooLong if a prompt of ``tokens`` tokens leaves no room for an answer in a window of ``context`` tokens
    (infinite: any prompt fits).

    ``model`` is the name in the message. ``about`` is ``"about "`` if ``tokens`` is an estimate. ``what`` says what the
    prompt consists of: QUESTION, MESSAGES or RAW.
    """
    if tokens >= context:
        raise TooLong(f"{what} {about}{tokens:,} tokens, and {model} reads at most {context:,}", _SHORTER[what])


def refuse_sparse_reading(settings: Settings) -> None:
    """Raise UsageError if the settings ask for sparse prefill on a GPU, for which there is no kernel that skips
    pages.
    """
    if settings.reading != "full" and (device := pick_device(settings.device)).type != "cpu":
        raise UsageError(f"--reading sparse works on a processor, not on {device}", "use --reading full")


def refuse_for_gguf(settings: Settings) -> None:
    """Raise UsageError for settings that llama.cpp cannot use with a GGUF: other weights than the file's own, sparse
    prefill, or an adapter. Raises ModelError if the adapter is missing.
    """
    if settings.weights not in ("auto", "full"):
        raise UsageError(
            f"llama.cpp computes a GGUF as it is quantized, not with {settings.weights} weights",
            "use --weights full, take another GGUF, or use --engine torch",
        )
    if settings.reading != "full":
        raise UsageError("llama.cpp does not support --reading sparse", "use --reading full or --engine torch")
    if settings.adapter != "auto" and (folder := find_adapter(settings.adapter, settings.model)):
        raise UsageError(
            f"llama.cpp cannot compute the adapter {folder.name}, which is in PEFT's format",
            "use --adapter none or --engine torch",
        )


def refuse_too_big(folder: Path, settings: Settings) -> None:
    """Raise ModelError if the weights of the model and of the adapter do not fit in the device's free memory."""
    device = pick_device(settings.device)
    dtype = pick_dtype(settings.dtype, device)
    refuse_weights(settings.weights, device, dtype)
    adapter = find_adapter(settings.adapter, settings.model)
    need = loading_bytes(folder, device, dtype, settings.weights) + (adapter_bytes(adapter) if adapter else 0)
    name = f"{settings.model}{' with its adapter' if adapter else ''}"
    _refuse_over(name, MemoryNeed(need), measure_device(str(device)).free)


def refuse_big_gguf(path: Path, settings: Settings) -> None:
    """Raise ModelError if the weights of the GGUF at ``path`` do not fit in free memory. Layers that do not fit on a
    GPU are computed from RAM.
    """
    device, free = llama_device(settings.device), measure_ram().free
    if device.type == "cuda":
        free += measure_device(str(device)).free
    _refuse_over(settings.model, MemoryNeed(open_gguf(path).nbytes), free)


def _refuse_over(name: str, need: MemoryNeed, free: int) -> None:
    if not need.fit_device(free).fits:
        raise ModelError(
            f"{name} takes {need.total / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free",
            "close programs, choose a smaller model (localctx models list), or see localctx plan",
        )


def plan(
    model: PagedModel, cache_plan: CachePlan, *, tokens: int, reused: int, answer: int, per_second: float | None
) -> Planned:
    """Estimate the cost of a prompt of ``tokens`` tokens for the cache plan ``cache_plan``. The first ``reused`` tokens
    come from kept pages, and the answer has at most ``answer`` tokens.

    ``per_second`` is the measured prefill rate in tokens per second, None if unknown. Raises TooLong if the tiers
    together have no room for the pages of the prompt.
    """
    keeper, shape = cache_plan.keeper, model.shape
    if not keeper.unbounded_positions:
        answer = min(answer, model.context - tokens)
    held = keeper.max_tokens_held(tokens + answer)
    beside = 0 if keeper.pages_may_persist else cache_plan.chunk  # a chunk is added before the keeper evicts
    kv_bytes = shape.cache_bytes(cache_plan.codec, held + beside, model.dtype.itemsize, cache_plan.chunk)
    if keeper.unbounded_positions and held < tokens + answer:
        # sinks are held twice: at their own positions, and re-rotated
        kv_bytes += keeper.sink_pages * shape.page_bytes(cache_plan.codec, sinks=True)
    fresh = kv_bytes - reused // PAGE * shape.part_bytes(cache_plan.codec, FULL)
    seconds = (tokens - reused) / per_second if per_second else None
    return Planned(
        mode="full",
        reason=_reason(model, cache_plan, tokens, held),
        tokens=tokens,
        reused=reused,
        kv_bytes=kv_bytes,
        seconds=seconds,
        answer_tokens=answer,
        window=model.context,
        codec=cache_plan.codec,
        keeper=keeper.name,
        unusual=held < tokens or model.context > model.trained,
        tiers=_bytes_by_tier(max(0, fresh), cache_plan, tokens + answer),
    )


def _reason(model: PagedModel, cache_plan: CachePlan, tokens: int, held: int) -> str:
    if held < tokens:
        return f"{cache_plan.keeper.name} keeps about {held:,} of the tokens at a time"
    if model.context > model.trained:
        return f"the documents fit the model's window, stretched from {model.trained:,} to {model.context:,} tokens"
    return "the documents fit the model's window"


def _bytes_by_tier(need: int, cache_plan: CachePlan, tokens: int) -> dict[str, int]:
    """Distribute ``need`` bytes over the tiers, the device first. Returns the number of bytes in each tier. Raises
    TooLong.
    """
    fit = MemoryNeed(kv=need).fit(cache_plan.limits)
    if not fit.fits:
        limits = vars(cache_plan.limits)
        room = ", ".join(f"{format_bytes(n)} of {tier}" for tier, n in limits.items() if n is not None)
        smaller = "" if cache_plan.codec == "int4" else ", try a smaller --kv (localctx quality says what it costs)"
        raise TooLong(
            f"{tokens:,} tokens take {format_bytes(need)} of KV; there are {room}",
            f"close other programs, raise --memory, --ram or --disk{smaller}, or ask a shorter part",
        )
    return {tier: int(nbytes) for tier, nbytes in fit.by_tier.items()}
