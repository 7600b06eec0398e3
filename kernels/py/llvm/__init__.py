"""Vectors and integer products written for LLVM, from which the kernels for a processor are made."""
