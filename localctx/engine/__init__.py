"""Tokens through a model: plan, prefill, decode, events."""
