"""Splits text into sentences, words and numbers, in several languages."""
