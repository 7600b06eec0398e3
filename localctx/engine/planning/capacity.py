"""Capacity: plans the memory that a model and a context need on this machine, and the longest context that fits. The
model is not loaded.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from localctx.engine.planning.model_sizes import GgufSizes, TorchSizes
from localctx.errors import UsageError
from localctx.models.choice.default_model import choose_model
from localctx.models.choice.engine_choice import choose_engine
from localctx.settings import Settings


@dataclass(frozen=True)
class Capacity:
    """The memory plan of a model, as ``localctx plan --json`` prints it. Sizes are in bytes, contexts in tokens.

    ``kv`` describes the cache of ``context`` tokens in the chosen codec. ``codecs`` describes the same cache in every
    codec, and ``fits`` is the longest context that fits in each. ``window`` is the context window of the model, None if
    its config has none. ``longer`` lists windows beyond ``window`` that were tested: ``context`` is their size, and
    ``rope`` the RoPE scaling that gives it. ``adapter_bytes`` is the size of the adapter with which questions are
    answered (0: no adapter). ``limits`` maps each tier to the number of bytes that KV may take there now (None: no
    limit). ``unfit`` says why this version cannot run the model, None if it can. ``gpu`` is set for a GGUF on a GPU:
    the ``GpuLayers`` that fit there, as JSON.
    """

    model: str
    family: str
    weights_bytes: int
    adapter_bytes: int
    activation_bytes: int
    kv: dict[str, Any]
    fits: dict[str, int]
    context: int
    window: int | None
    longer: list[dict[str, Any]]
    codecs: dict[str, dict[str, Any]]
    attention: dict[str, Any]
    sliding: dict[str, Any] | None
    device: str
    dtype: str
    weights: str
    weights_dtype: str
    chunk: int
    free_bytes: int
    limits: dict[str, int | None]
    unfit: str | None
    engine: str = "torch"
    gpu: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the plan as JSON."""
        return asdict(self)


def plan_memory(
    settings: Settings,
    config: Path | None = None,
    context: int | None = None,
    device_memory: int | None = None,
    passed: Callable[[str], bool | None] = lambda codec: None,
) -> Capacity:
    """Plan the memory of a model and a ``context`` (None: the model's window) for the engine that runs the model.

    The model is ``settings.model``, or the model that the file ``config`` describes. ``device_memory`` replaces the
    measured free memory, in bytes. ``passed`` takes a codec and returns True or False if its quality was measured, None
    if not. Raises UserError.
    """
    settings = replace(settings, weights="full") if config and settings.weights == "auto" else choose_model(settings)
    by_llama = config is None and choose_engine(settings.model, settings.engine) == "llama.cpp"
    sizes = GgufSizes(settings, device_memory) if by_llama else TorchSizes(settings, config, device_memory)
    tokens = context or sizes.window
    if tokens < 1:
        raise UsageError("the model's config does not name its window", "give a length with --context")
    codec = sizes.codec(passed)
    need = sizes.need(codec, tokens)
    return Capacity(
        model=str(config or settings.model),
        family=sizes.family,
        weights_bytes=sizes.weights,
        adapter_bytes=sizes.adapter,
        activation_bytes=round(need.working),
        kv=sizes.kv(codec, tokens),
        fits={c: sizes.longest(c) for c in sizes.codecs},
        context=tokens,
        window=sizes.window or None,
        longer=[vars(window) for window in sizes.longer],
        codecs={c: sizes.kv(c, tokens) for c in sizes.codecs},
        attention=sizes.attention(codec),
        sliding=sizes.sliding(codec, tokens),
        device=str(sizes.device),
        dtype=sizes.dtype,
        weights=settings.weights,
        weights_dtype=sizes.weights_dtype,
        chunk=sizes.chunk,
        free_bytes=sizes.free,
        limits=vars(sizes.limits(need)),
        unfit=sizes.unfit,
        engine=sizes.engine,
        gpu=sizes.gpu,
    )
