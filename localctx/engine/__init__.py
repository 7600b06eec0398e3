"""Runs tokens through a model: plans, prefills and decodes a request, and yields events."""
