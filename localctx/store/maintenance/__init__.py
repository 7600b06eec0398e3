"""Backs up, repairs and evicts from the store."""
