"""Tensors in, tensors out: a torch reference beside every fast path. No state, no files, imports nothing of ours."""
