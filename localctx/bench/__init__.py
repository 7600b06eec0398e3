"""Measures speed and memory of localctx and of other engines (peers), with the same weights and text in one run."""

from typing import Any

from localctx.settings import WEIGHTS

MEASUREMENTS = ("decode", "prefill", "reopen", "spill", "memory", "parallel")
OF_LLAMA_CPP = ("decode", "prefill", "reopen", "memory")
"""The measurements of localctx on llama.cpp, which does not spill pages and batches sequences in its own way."""

ENGINES = ("localctx", "llama.cpp", "transformers")
OWN_VARIANTS: dict[str, dict[str, Any]] = {
    **{f"localctx:weights-{weights}": {"weights": weights} for weights in WEIGHTS},
    "localctx:sparse": {"reading": "sparse"},
    **{f"localctx:weights-{weights}-sparse": {"weights": weights, "reading": "sparse"} for weights in WEIGHTS},
}
"""The variants of localctx for ``--engines``, with the settings that differ from the run's. A variant with other
weights loads a second model.
"""

OTHER_FILES = (
    *("llama.cpp:published", "llama.cpp:weights-q8_0", "llama.cpp:weights-q4_1", "llama.cpp:weights-q4_k_m"),
)
"""The variants of llama.cpp for ``--engines`` that run another file than the 16-bit one."""

PEER_VARIANTS = (
    *("llama.cpp:f16", "llama.cpp:flash-f16", "llama.cpp:flash-q8_0", *OTHER_FILES),
    *("transformers:DynamicCache", "transformers:QuantizedCache"),
)
"""The names of all configurations of peers, each of which ``--engines`` can choose."""

CONTEXTS = (512, 2048, 4096, 8192)
