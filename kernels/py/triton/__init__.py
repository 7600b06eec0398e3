"""Triton kernels for NVIDIA GPUs. They are imported only on machines that can run them."""
