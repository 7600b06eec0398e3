"""Model files: GGUF, safetensors and config.json, checked before any library opens them."""
