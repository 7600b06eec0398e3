"""Weights in fewer bits, for processors and GPUs."""
