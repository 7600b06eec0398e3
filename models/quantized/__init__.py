"""Quantized weights for CPUs and GPUs."""
