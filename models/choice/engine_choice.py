"""Chooses the engine of a model: torch over our KV pages, or llama.cpp for GGUF files."""

from localctx.errors import ModelError
from localctx.models.catalog import load_catalog
from localctx.models.files.gguf_file import GGUF_ON_HUB, find_gguf, open_gguf
from localctx.models.llama_cpp.library import llama_cpp_is_installed
from localctx.settings import EngineName

TORCH_FAMILIES = {
    "llama",
    "mistral",
    "qwen2",
    "qwen2moe",
    "qwen3",
    "qwen3moe",
    "falcon",
    "phi3",
    "starcoder2",
    "gemma2",
    "gemma3",
    "gpt-oss",
}
"""The GGUF architectures that are converted for torch and computed correctly there."""


def choose_engine(model: str, engine: str) -> EngineName:
    """Returns the engine for ``model`` under the setting ``engine``: torch, llama.cpp or auto.

    ``auto`` selects llama.cpp for a GGUF whose quantization torch cannot use as it is, and for a GGUF of a family that
    torch does not support. If llama.cpp is not installed, torch runs the families it supports. Raises ModelError for
    llama.cpp with a model that is not a GGUF, and for an invalid file.
    """
    path = None if model in load_catalog() else find_gguf(model)
    on_hub = bool(GGUF_ON_HUB.fullmatch(model)) and not path
    if engine == "torch" or not (path or on_hub or engine == "llama.cpp"):
        return "torch"
    if engine == "llama.cpp" or on_hub:
        if not (path or on_hub):
            raise ModelError(
                f"llama.cpp runs GGUF files, and {model} is not one", "name a .gguf file, or use --engine auto"
            )
        return "llama.cpp"
    assert path
    gguf = open_gguf(path)
    known = len(gguf.parts) == 1 and gguf.family in TORCH_FAMILIES
    if known and not (gguf.quantized and llama_cpp_is_installed()):
        return "torch"
    return "llama.cpp"
