"""The settings page, which includes the memory page."""
