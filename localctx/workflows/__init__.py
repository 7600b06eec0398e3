"""Workflows on top of the engine and the library: ask, chat, search passages, summarize."""
