"""Refuses settings that llama.cpp does not support for any GGUF, before the file is loaded."""

from localctx.errors import UsageError
from localctx.models.adapter_folders import find_adapter
from localctx.settings import Settings


def refuse_for_gguf(settings: Settings) -> None:
    """Raise UsageError for weights other than the file's own, sparse prefill, or an adapter; ModelError for a missing
    adapter.
    """
    if settings.weights not in ("auto", "full"):
        raise UsageError(
            f"llama.cpp computes a GGUF as it is quantized, not with {settings.weights} weights",
            "use --weights full, take another GGUF, or use --engine torch",
        )
    if settings.reading != "full":
        raise UsageError("llama.cpp skips no pages when it reads", "use --reading full or --engine torch")
    if settings.adapter != "auto" and (folder := find_adapter(settings.adapter, settings.model)):
        raise UsageError(
            f"llama.cpp cannot compute the adapter {folder.name}, which is in PEFT's format",
            "use --adapter none or --engine torch",
        )
