"""The version of localctx."""

__version__ = "0.1.0"
