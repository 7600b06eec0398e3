"""Backends that encode, decode and attend to pages: torch, Numba or Triton."""
