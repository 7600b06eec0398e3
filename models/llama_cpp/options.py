"""Options of llama.cpp contexts, and the lengths to which sequences can be trimmed. This module does not import torch,
so that the child process that tries a file starts quickly.
"""

from dataclasses import dataclass
from typing import Any

from localctx.errors import UsageError
from localctx.models.llama_cpp.library import QUANTIZED, kv_types, llama_library
from localctx.settings import parse_rope

MAX_OUTPUTS = 64  # tokens with logits per native batch; their buffer takes vocabulary x 4 bytes each
LLAMA_KEEPERS = ("full", "sink-window")  # the others need attention or keys, which llama.cpp does not expose
CELLS = 256  # llama.cpp pads a context to a multiple of this


@dataclass(frozen=True)
class MemoryKind:
    """Says to which lengths a sequence can be trimmed. With full attention, any length is possible. With a sliding
    ``window`` (in tokens; 0: none), the tokens before the new end must still be in memory. With ``recurrent`` states,
    trimming is impossible.
    """

    window: int
    recurrent: bool

    @property
    def rewinds(self) -> bool:
        """True if a sequence can be trimmed to any length."""
        return not self.window and not self.recurrent

    @property
    def sequences(self) -> int:
        """The maximum number of resident sequences; one of them is reserved for temporary copies. It is lower with
        sliding windows or recurrent states, because each sequence then takes extra memory.
        """
        return 64 if self.rewinds else 4


@dataclass(frozen=True)
class ContextOptions:
    """The options of a native llama.cpp context. ``cells`` is the capacity in tokens, ``sequences`` the maximum number
    of sequences (the last is for temporary copies). ``kv`` is the codec, ``rope`` the RoPE scaling (such as ``yarn:2``,
    or ``auto`` for the file's own), and ``batch`` the number of tokens per batch. ``threads`` is the number of threads.
    If ``offload`` is True, keys and values are on the GPU.
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
        """True if flash attention is used. A quantized V needs it; GPUs are faster with it, CPUs slower."""
        return self.offload or self.kv in QUANTIZED

    def native(self, trained: int) -> Any:
        """Returns llama.cpp's context parameters for a model with a trained window of ``trained`` tokens."""
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
    """Parse a RoPE scaling: ``yarn:2`` is ("yarn", 2.0). ``auto`` is None, the file's own scaling. Raises UsageError
    for a scaling that llama.cpp supports only in files.
    """
    scaling = parse_rope(spec)
    if scaling and scaling[0] not in ("yarn", "linear"):
        raise UsageError(
            f"llama.cpp takes {scaling[0]} scaling only from a file", "use yarn:2, linear:2 or --engine torch"
        )
    return scaling


def scaled_window(trained: int, rope: str) -> int:
    """Returns the window in tokens after scaling a ``trained`` window by ``rope``."""
    scaling = parse_llama_rope(rope)
    return int(trained * scaling[1]) if scaling else trained


def memory_kind(model: Any) -> MemoryKind:
    """Returns the MemoryKind of the loaded llama.cpp model at the pointer ``model``."""
    library = llama_library()
    recurrent = library.llama_model_is_recurrent(model) or library.llama_model_is_hybrid(model)
    return MemoryKind(library.llama_model_n_swa(model), recurrent)
