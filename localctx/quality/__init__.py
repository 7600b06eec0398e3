"""Measures whether a codec or a keeper is good enough on the user's own text, in one run."""
