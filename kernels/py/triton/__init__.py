"""Kernels for NVIDIA GPUs, by Triton. Imported only where they run."""
