"""Reads RTF into blocks."""
