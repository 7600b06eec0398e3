"""CPU kernels in numba: attention, decoder layers and products with weights. Each is compiled once."""
