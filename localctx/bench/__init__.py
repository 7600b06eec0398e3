"""Benchmarks: speed and memory of localctx and of peers, with the same weights and text in one run."""

MEASUREMENTS = ("decode", "prefill", "reopen", "spill", "memory")
OF_LLAMA_CPP = ("decode", "prefill", "reopen", "memory")
"""The measurements of localctx over llama.cpp, which spills nothing."""

ENGINES = ("localctx", "llama.cpp", "transformers")
PEER_VARIANTS = (
    *("llama.cpp:f16", "llama.cpp:flash-f16", "llama.cpp:flash-q8_0"),
    *("transformers:DynamicCache", "transformers:QuantizedCache"),
)
"""Names of single configurations of peers, for ``--engines``."""

CONTEXTS = (512, 2048, 4096, 8192)
