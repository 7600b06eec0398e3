"""Checks whether llama.cpp can shift a model's context window over a text, and if not, why."""

from localctx.models.files.gguf_file import GgufFile
from localctx.models.llama_cpp.library import QUANTIZED
from localctx.models.llama_cpp.options import parse_llama_rope
from localctx.models.llama_cpp.trial import LlamaSizes

_TORCH = "leave --keep, or use --engine torch where it runs the model"


def cannot_shift(gguf: GgufFile, sizes: LlamaSizes, codec: str, rope: str) -> tuple[str, str] | None:
    """Returns the reason why positions in the memory of ``gguf`` cannot be shifted, and a remedy; None if they can.

    llama.cpp (as of 0.3.36) rotates moved keys in place. Each move multiplies them, and those of other sequences, by
    YaRN's factor again. It aborts the process for bf16 keys, and crashes for quantized keys without a Hadamard
    transform (``LlamaSizes.transformed``).
    """
    if sizes.recurrent:
        return "nothing can be cut out of its recurrent states", _TORCH
    if sizes.window:
        return "llama.cpp keeps only the last tokens of its sliding layers", _TORCH
    if not sizes.shifts or "position_embd.weight" in gguf.header.tensors:
        return f"llama.cpp cannot move the positions of {gguf.family}", _TORCH
    scaling = parse_llama_rope(rope)
    if scaling and scaling[0] == "yarn":
        return f"positions scaled by {rope} cannot be moved in llama.cpp", "leave --rope: a window needs none"
    if not scaling and _scales_keys(gguf):
        return "positions that its file scales (YaRN, LongRoPE) cannot be moved in llama.cpp", _TORCH
    if codec == "bf16" or (codec in QUANTIZED and not (codec in sizes.transformed and _rotates_whole_keys(gguf))):
        return f"llama.cpp cannot rotate keys in {codec} for this model", "use --kv f16"
    return None


def _rotates_whole_keys(gguf: GgufFile) -> bool:
    length = gguf.header.get("attention.key_length")
    return gguf.header.get("rope.dimension_count", length) == length


def _scales_keys(gguf: GgufFile) -> bool:
    factor = gguf.header.get("rope.scaling.attn_factor", 1.0)
    return gguf.header.get("rope.scaling.type", "") in ("yarn", "longrope") or factor != 1.0
