"""Speed and memory, ours and of peers, on the same weights and text in one run."""

WHAT = ("decode", "prefill", "reopen", "spill", "memory")
ENGINES = ("localctx", "llama.cpp", "transformers")
PEER_WAYS = (
    *("llama.cpp:f16", "llama.cpp:flash-f16", "llama.cpp:flash-q8_0"),
    *("transformers:DynamicCache", "transformers:QuantizedCache"),
)
"""One way of a peer to keep KV, where not all of them are measured."""

CONTEXTS = (512, 2048, 4096, 8192)
