"""How llama.cpp's contexts are made, and what the memory of a model can do. Without torch, so that a child process that
tries a file begins at once.
"""

from dataclasses import dataclass
from typing import Any

from localctx.errors import UsageError
from localctx.models.llama_cpp.library import QUANTIZED, kv_types, llama_library
from localctx.settings import ROPE

MAX_OUTPUTS = 64  # tokens of one native batch whose logits are wanted: their buffer is vocabulary x 4 bytes for each
LLAMA_KEEPERS = ("full", "sink-window")  # the others go by attention or keys, which llama.cpp does not show
CELLS = 256  # llama.cpp pads a context to a multiple of this


@dataclass(frozen=True)
class MemoryKind:
    """What a model's memory can do: a sequence of full attention can be cut anywhere; with a sliding ``window`` (in
    tokens; 0: none) only while the tokens before are still there; with ``recurrent`` states never.
    """

    window: int
    recurrent: bool

    @property
    def rewinds(self) -> bool:
        """True if a sequence can be cut anywhere."""
        return not self.window and not self.recurrent

    @property
    def sequences(self) -> int:
        """The most sequences that are resident, one of them for copies: of other kinds each takes memory of its own."""
        return 64 if self.rewinds else 4


@dataclass(frozen=True)
class ContextOptions:
    """How a context is made: ``cells`` for tokens, ``sequences`` at most (the last is for copies), the codec ``kv``,
    the ``rope`` scaling as in the settings, ``batch`` tokens at once, ``threads``; ``offload``: KV is on the GPU.
    """

    cells: int
    sequences: int
    kv: str
    rope: str = "auto"
    batch: int = 512
    threads: int = 1
    offload: bool = False

    @property
    def flash(self) -> bool:
        """True if flash attention computes: a quantized V needs it, GPUs are faster with it, and processors slower."""
        return self.offload or self.kv in QUANTIZED

    def native(self, trained: int) -> Any:
        """Returns llama.cpp's parameters for a model that was trained with a window of ``trained`` tokens."""
        library = llama_library()
        p = library.llama_context_default_params()
        p.n_ctx, p.n_seq_max, p.kv_unified, p.swa_full = self.cells, self.sequences, True, False
        p.n_batch = p.n_ubatch = self.batch
        p.n_outputs_max = min(MAX_OUTPUTS, self.batch)
        p.n_threads = p.n_threads_batch = self.threads
        p.type_k, p.type_v = kv_types(self.kv)
        kinds = ("DISABLED", "ENABLED")
        p.flash_attn_type = getattr(library, f"LLAMA_FLASH_ATTN_TYPE_{kinds[self.flash]}")
        p.offload_kqv = p.op_offload = self.offload
        if scaling := parse_llama_rope(self.rope):
            kind, factor = scaling
            p.rope_scaling_type = getattr(library, f"LLAMA_ROPE_SCALING_TYPE_{kind.upper()}")
            p.rope_freq_scale = 1 / factor
            p.yarn_orig_ctx = trained if kind == "yarn" else 0
        return p


def parse_llama_rope(spec: str) -> tuple[str, float] | None:
    """``yarn:2`` is ("yarn", 2.0); None for ``auto``, the scaling of the file. Raises UsageError for what llama.cpp
    takes from files alone.
    """
    match = ROPE.fullmatch(spec)
    if not match:
        return None
    if match[1] not in ("yarn", "linear"):
        raise UsageError(
            f"llama.cpp takes {match[1]} scaling from a file alone", "use yarn:2, linear:2 or --engine torch"
        )
    return match[1], float(match[2])


def scaled_window(trained: int, rope: str) -> int:
    """Returns the window in tokens, with the scaling ``rope``, of a model that was trained with one of ``trained``."""
    scaling = parse_llama_rope(rope)
    return int(trained * scaling[1]) if scaling else trained


def memory_kind(model: Any) -> MemoryKind:
    """Returns what the memory of the loaded model at the pointer ``model`` can do."""
    library = llama_library()
    recurrent = library.llama_model_is_recurrent(model) or library.llama_model_is_hybrid(model)
    return MemoryKind(library.llama_model_n_swa(model), recurrent)
