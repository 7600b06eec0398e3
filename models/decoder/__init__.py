"""Decoders computed by torch over our KV pages, with or without transformers."""
