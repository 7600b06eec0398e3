"""Benchmarks: speed and memory of localctx and of peers, with the same weights and text in one run."""

from typing import Any

from localctx.settings import WEIGHTS

MEASUREMENTS = ("decode", "prefill", "reopen", "spill", "memory", "parallel")
OF_LLAMA_CPP = ("decode", "prefill", "reopen", "memory")
"""The measurements of localctx over llama.cpp, which does not spill and batches sequences in its own way."""

ENGINES = ("localctx", "llama.cpp", "transformers")
OWN_VARIANTS: dict[str, dict[str, Any]] = {
    **{f"localctx:weights-{weights}": {"weights": weights} for weights in WEIGHTS},
    "localctx:sparse": {"reading": "sparse"},
    **{f"localctx:weights-{weights}-sparse": {"weights": weights, "reading": "sparse"} for weights in WEIGHTS},
}
"""localctx with settings other than the run's, for ``--engines``. Other weights load a second model."""

OTHER_FILES = (
    *("llama.cpp:published", "llama.cpp:weights-q8_0", "llama.cpp:weights-q4_1", "llama.cpp:weights-q4_k_m"),
)
"""llama.cpp with a file other than the 16-bit one, for ``--engines``."""

PEER_VARIANTS = (
    *("llama.cpp:f16", "llama.cpp:flash-f16", "llama.cpp:flash-q8_0", *OTHER_FILES),
    *("transformers:DynamicCache", "transformers:QuantizedCache"),
)
"""Names of single configurations of peers, for ``--engines``."""

CONTEXTS = (512, 2048, 4096, 8192)
