"""Parses the flags of ``bench`` into measurements, before anything heavy is imported."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localctx.cli.common import parse_numbers, parse_words
from localctx.errors import UsageError

OF_GGUF = ("localctx", "llama.cpp")  # the engines that compute a GGUF in its own quantization

if TYPE_CHECKING:
    from localctx.settings import Settings


@dataclass(frozen=True)
class BenchOptions:
    """The options of a benchmark: the measurements ``what`` of ``engines``, at ``contexts`` (in tokens) and in
    ``repeat`` rounds.

    localctx is measured with each of ``codecs`` and ``keeps`` (eviction policies). ``gguf`` is the file for the peer
    llama.cpp (None: a file found for the model or made from it).
    """

    what: list[str]
    contexts: list[int]
    engines: list[str]
    codecs: list[str]
    keeps: list[str]
    repeat: int
    gguf: Path | None


def bench_options(settings: "Settings", how: dict[str, Any]) -> BenchOptions:
    """Returns the options of a benchmark that the flags ``how`` ask for: ``what``, ``engines``, ``context``,
    ``codecs``, ``keeps``, ``repeat`` and ``gguf``.

    The default is all measurements that the engine of the settings' model supports. Raises UserError.
    """
    from localctx.bench import CONTEXTS, ENGINES, OTHER_FILES, OWN_VARIANTS, PEER_VARIANTS
    from localctx.models.choice.engine_choice import choose_engine

    llama_cpp = choose_engine(settings.model, settings.engine) == "llama.cpp"
    default = ",".join(OF_GGUF if llama_cpp else ENGINES)
    engines = parse_words("--engines", how["engines"] or default, (*ENGINES, *OWN_VARIANTS, *PEER_VARIANTS))
    choose = _of_llama_cpp if llama_cpp else _of_torch
    what, codecs, keeps = choose(how["what"], how["codecs"], how["keeps"])
    no_gguf = {*OWN_VARIANTS, *OTHER_FILES}
    if llama_cpp and (other := next((e for e in engines if e in no_gguf or not e.startswith(OF_GGUF)), None)):
        raise UsageError(f"{other} cannot run a quantized GGUF", f"use some of: {','.join(OF_GGUF)}")
    contexts = parse_numbers("--context", how["context"]) or list(CONTEXTS)
    return BenchOptions(what, contexts, engines, codecs, keeps, how["repeat"], how["gguf"])


def _of_torch(what: str | None, codecs: str | None, keeps: str | None) -> tuple[list[str], list[str], list[str]]:
    from localctx.bench import MEASUREMENTS
    from localctx.kv.keepers import make_keeper
    from localctx.shape import FORMATS

    chosen = [keep for keep in (keeps or "select:2048").split(",") if keep != "full"]  # full is always measured
    for keep in chosen:
        if make_keeper(keep, 0).name != "select":
            raise UsageError(f"--keep {keep} is not measured", "use full, or select with a budget, as select:2048")
    wanted = parse_words("--what", what or ",".join(MEASUREMENTS), MEASUREMENTS)
    return wanted, parse_words("--kv", codecs or "int8", list(FORMATS)), chosen


def _of_llama_cpp(what: str | None, codecs: str | None, keeps: str | None) -> tuple[list[str], list[str], list[str]]:
    from localctx.bench import MEASUREMENTS, OF_LLAMA_CPP
    from localctx.models.llama_cpp.library import NATIVE_CODEC, kv_types

    wanted = parse_words("--what", what, MEASUREMENTS) if what else list(OF_LLAMA_CPP)
    for word, why in (("spill", "spills no keys and values to disk"), ("parallel", "is not measured side by side")):
        if word in wanted:
            raise UsageError(f"llama.cpp {why}", f"leave {word} out, or use --engine torch")
    if keeps not in (None, "full"):
        raise UsageError(f"llama.cpp does not support --keep {keeps}", "leave --keep out, or use --engine torch")
    chosen = (codecs or NATIVE_CODEC).split(",")
    for codec in chosen:
        kv_types(codec)  # raises if llama.cpp does not have this codec
    return wanted, chosen, []
