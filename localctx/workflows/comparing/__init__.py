"""Recognizes questions that compare documents, and compares the values that each document gives."""
