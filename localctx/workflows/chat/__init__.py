"""Questions that build on each other."""
