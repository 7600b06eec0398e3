"""Lists the codecs and keepers (eviction policies) that the memory page offers, with their measured quality."""

from collections.abc import Mapping
from typing import Any

from localctx.errors import UserError
from localctx.models.choice.engine_choice import choose_engine
from localctx.models.llama_cpp.library import KV_TYPES, NATIVE_CODEC
from localctx.models.llama_cpp.options import LLAMA_KEEPERS
from localctx.settings import EngineName, Settings
from localctx.shape import FORMATS

KEEPER_LABELS = {
    "full": "attention sees everything",
    "select:1/4": "each query attends to the quarter of the pages that match it best; nothing is dropped",
    "sink-window:2048": "the beginning and the last 2,048 tokens; the rest is dropped",
    "h2o:2048": "2,048 tokens: those with the most attention so far, and the last",
    "snapkv:2048": "once the question is read, the 2,048 tokens that each head attended to most",
}
KEEPER_INFO: dict[EngineName, str] = {
    "torch": "one of these, or another budget, as select:1/8 or h2o:4096",
    "llama.cpp": "one of these, or another budget, as sink-window:4096; torch has more",
}

Choices = list[tuple[str, str]]


def engine_of(settings: Settings) -> EngineName:
    """Returns the engine of the model in the settings. If the model cannot be read, returns torch; the memory page then
    shows the error when it plans with torch.
    """
    try:
        return choose_engine(settings.model, settings.engine)
    except (UserError, OSError):
        return "torch"


def codec_choices(engine: EngineName, chosen: str, results: Mapping[str, dict[str, Any]]) -> Choices:
    """Returns (label, name) of each codec of an engine. If the engine does not have the ``chosen`` codec, it is added
    at the end.

    ``results`` has the measured quality, by codec.
    """
    if engine == "torch":
        codecs = [("auto: the smallest that passed, int8 until measured", "auto")]
        codecs += [(f"{codec}: {_quality(results.get(codec))}", codec) for codec in FORMATS]
    else:
        codecs = [(f"auto: {NATIVE_CODEC}, and int8 where memory is short", "auto")]
        codecs += [
            (f"{codec}: {' and '.join(dict.fromkeys(KV_TYPES[codec]))} of llama.cpp", codec) for codec in KV_TYPES
        ]
    if chosen not in (name for _, name in codecs):
        codecs.append((f"{chosen}: {engine} does not have it, choose another", chosen))
    return codecs


def keeper_choices(engine: EngineName, results: Mapping[str, dict[str, Any]]) -> Choices:
    """Returns (label, name) of each keeper (eviction policy) of an engine. ``results`` has the measured quality, by
    codec and keeper.
    """
    offered = [keep for keep in KEEPER_LABELS if engine == "torch" or keep.partition(":")[0] in LLAMA_KEEPERS]
    return [(f"{keep}: {KEEPER_LABELS[keep]}{_keeper_quality(results, keep)}", keep) for keep in offered]


def _quality(measured: dict[str, Any] | None) -> str:
    """Returns a measured quality in a few words."""
    if not measured:
        return "not measured on this computer"
    marks = [mark for needles in measured["needles"].values() for mark in needles.values()]
    verdict = "passed" if measured["passed"] else "not good enough"
    return (
        f"{verdict} (KL {measured['kl_mean']:.2g}, top-1 {measured['top1']:.1%}, needles {sum(marks)} of {len(marks)}, "
        f"{measured['tokens']:,} tokens)"
    )


def _keeper_quality(results: Mapping[str, dict[str, Any]], keep: str) -> str:
    """Returns the last measured quality of a keeper, with any codec."""
    measurements = [(m["measured"], name, m) for name, m in results.items() if name.endswith(f" {keep}")]
    if keep == "full":
        return ""
    if not measurements:
        return "; not measured on this computer"
    _, name, measured = max(measurements, key=lambda each: each[0])
    return f"; in {name.split()[0]} {_quality(measured)}"
