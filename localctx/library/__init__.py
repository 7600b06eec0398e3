"""Parses documents into text and spans, and finds and cites passages in them."""
