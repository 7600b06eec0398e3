"""Backs up and repairs the store, and evicts pages and files from it."""
