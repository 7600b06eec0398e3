"""Benchmarks: speed and memory of localctx and of peers, with the same weights and text in one run."""

from typing import Any

from localctx.settings import WEIGHTS

MEASUREMENTS = ("decode", "prefill", "reopen", "spill", "memory", "parallel")
OF_LLAMA_CPP = ("decode", "prefill", "reopen", "memory")
"""The measurements of localctx over llama.cpp, which spills nothing and shares a pass in its own way."""

ENGINES = ("localctx", "llama.cpp", "transformers")
OWN_VARIANTS: dict[str, dict[str, Any]] = {
    **{f"localctx:weights-{weights}": {"weights": weights} for weights in WEIGHTS},
    "localctx:sparse": {"reading": "sparse"},
    **{f"localctx:weights-{weights}-sparse": {"weights": weights, "reading": "sparse"} for weights in WEIGHTS},
}
"""localctx with other settings than the run's, for ``--engines``. For other weights a second model is loaded."""

OTHER_FILES = (
    *("llama.cpp:published", "llama.cpp:weights-q8_0", "llama.cpp:weights-q4_1", "llama.cpp:weights-q4_k_m"),
)
"""llama.cpp with another file than that in 16 bits, for ``--engines``."""

PEER_VARIANTS = (
    *("llama.cpp:f16", "llama.cpp:flash-f16", "llama.cpp:flash-q8_0", *OTHER_FILES),
    *("transformers:DynamicCache", "transformers:QuantizedCache"),
)
"""Names of single configurations of peers, for ``--engines``."""

CONTEXTS = (512, 2048, 4096, 8192)
