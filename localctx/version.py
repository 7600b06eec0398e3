"""The version of localctx."""

__version__ = "0.2.0"
