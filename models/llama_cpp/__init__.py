"""Models computed by llama.cpp, which holds keys, values and recurrent states itself."""
