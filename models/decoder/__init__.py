"""Decoders that torch computes over pages of ours, with or without transformers."""
