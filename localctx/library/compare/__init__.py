"""Compares two versions of a document: aligns their clauses, and finds the words that differ."""
