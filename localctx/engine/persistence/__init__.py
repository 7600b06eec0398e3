"""Persists KV pages to the store and restores them."""
