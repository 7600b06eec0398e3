"""The KV cache: pages, their names, codecs, tiers and the sequence a model reads and extends."""
