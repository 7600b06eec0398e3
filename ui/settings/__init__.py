"""The settings page and, in it, the memory page."""
