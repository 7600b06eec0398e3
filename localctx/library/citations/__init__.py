"""Finds the sentences of a document that support an answer."""
