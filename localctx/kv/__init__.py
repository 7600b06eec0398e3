"""The KV cache: pages, page names, codecs, tiers, and the sequence that a model reads and extends."""
