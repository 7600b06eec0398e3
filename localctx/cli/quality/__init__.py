"""The command ``quality``."""
