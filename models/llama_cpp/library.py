"""Access to llama.cpp through llama-cpp-python: finds whether it is installed, and reads its build, its log and its KV
types.
"""

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from localctx.errors import ModelError, UsageError
from localctx.models.fingerprint import hash_file

KV_TYPES = {
    "f32": ("F32", "F32"),
    "f16": ("F16", "F16"),
    "bf16": ("BF16", "BF16"),
    "int8": ("Q8_0", "Q8_0"),
    "k8v4": ("Q8_0", "Q4_0"),
    "int4": ("Q4_0", "Q4_0"),
}
"""The ggml types of K and V for each of our codecs that llama.cpp supports; ``f16`` is its default."""

GGML_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "BF16": 30}
"""ggml's type numbers, because llama-cpp-python does not define all of them."""

QUANTIZED = ("int8", "k8v4", "int4")
NATIVE_CODEC = "f16"
"""llama.cpp's default codec."""

NO_TRANSFORM = "LLAMA_ATTN_ROT_DISABLE"
"""llama.cpp's environment variable that disables the Hadamard transform of quantized keys."""

LIBRARY_SUFFIXES = (".so", ".dylib", ".dll")
_INFO = 2  # log level of lines that report sizes


def llama_cpp_is_installed() -> bool:
    """Returns True if llama-cpp-python is installed."""
    return find_spec("llama_cpp") is not None


@functools.cache
def llama_library() -> Any:
    """Returns llama-cpp-python's module, with its log silenced. Raises ModelError if it is not installed."""
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # else it would start a debugger on abort
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as e:  # absent, or its library does not load on this machine
        raise ModelError(
            f"llama.cpp is not installed here ({str(e).splitlines()[0]})",
            "install it: pip install 'localctx[gguf]' (it compiles for minutes, and needs a C++ compiler and cmake)",
        ) from e
    llama_cpp.llama_log_set(_log_callback(llama_cpp), ctypes.c_void_p(0))
    return llama_cpp


@functools.cache
def llama_build() -> list[str]:
    """Returns the identity of the installed llama.cpp: its version, and the content hashes of its libraries."""
    library = llama_library()
    libraries = Path(library.__file__).with_name("lib").glob("*")
    files = sorted(file for file in libraries if file.suffix in LIBRARY_SUFFIXES) or [Path(library.__file__)]
    return [library.__version__, *(f"{file.name} {hash_file(file)}" for file in files)]


def kv_types(codec: str) -> tuple[int, int]:
    """Returns the ggml types of K and V for ``codec``. Raises UsageError for an unsupported codec."""
    if codec not in KV_TYPES:
        raise UsageError(f"llama.cpp has no {codec} KV", f"use one of: auto, {', '.join(KV_TYPES)}; or --engine torch")
    k, v = KV_TYPES[codec]
    return GGML_TYPES[k], GGML_TYPES[v]


_captured: list[list[str]] = []  # lists that receive log lines


@contextmanager
def llama_log() -> Iterator[list[str]]:
    """Yields a list that collects llama.cpp's log lines while the block runs."""
    llama_library()
    lines = list[str]()
    _captured.append(lines)
    try:
        yield lines
    finally:
        _captured[:] = [one for one in _captured if one is not lines]  # ``remove`` would compare by equality


@functools.cache  # the library keeps no reference to it
def _log_callback(library: Any) -> Any:
    def collect(level: int, text: bytes, data: object) -> None:
        if level >= _INFO:
            for lines in _captured:
                lines.append(text.decode("utf-8", "replace"))

    return library.llama_log_callback(collect)
