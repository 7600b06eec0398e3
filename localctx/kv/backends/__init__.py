"""Where pages are encoded, decoded and attended to: torch, Numba or Triton."""
