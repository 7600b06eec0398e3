"""KV pages from a request to the store and back."""
