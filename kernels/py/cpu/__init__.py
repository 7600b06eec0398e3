"""Kernels for a processor, by numba: attention, decoder layers, products by weights; each compiled once."""
