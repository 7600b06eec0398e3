"""Marks of tests that need what `packaging/check` installs only when told to: they are skipped where it is absent."""

from importlib.util import find_spec

import pytest


def _needs(what: str, *modules: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not all(map(find_spec, modules)), reason=f"{what} is not installed")


needs_llama = _needs("llama-cpp-python", "llama_cpp")
needs_ocr = _needs("localctx[ocr]", "rapidocr", "onnxruntime")
needs_ray = _needs("Ray", "ray")
