"""Workflows that use the engine and the library: they ask, chat, find passages and summarize."""
