"""Speed and memory, ours and of peers, on the same weights and text in one run."""

WHAT = ("decode", "prefill", "reopen", "spill", "memory")
ENGINES = ("localctx", "llama.cpp", "transformers")
CONTEXTS = (512, 2048, 4096, 8192)
