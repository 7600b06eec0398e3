"""Runs tokens through a model: plan, prefill, decode, events."""
