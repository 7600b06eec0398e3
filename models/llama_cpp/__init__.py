"""Models that llama.cpp computes: it holds keys, values and states itself."""
