"""Answers questions that build on each other."""
