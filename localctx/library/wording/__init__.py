"""Sentences, words and numbers of a text, in several languages."""
