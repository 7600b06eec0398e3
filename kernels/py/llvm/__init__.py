"""Vector operations and integer products as LLVM code, from which the CPU kernels are built."""
