"""Decoding of several sequences in one pass."""
