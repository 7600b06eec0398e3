"""localctx: a document is read once, its KV pages are kept, every later question starts where reading ended."""

__version__ = "0.1.0"
