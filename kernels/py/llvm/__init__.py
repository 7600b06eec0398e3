"""Vector operations and integer products written for LLVM, the building blocks of the CPU kernels."""
