"""Recognizes questions that compare documents, and compares the values that the documents give."""
