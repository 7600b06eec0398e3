"""Triton kernels for NVIDIA GPUs. Imported only on machines that run them."""
