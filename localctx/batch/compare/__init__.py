"""Writes the differences between two versions of a document as text, a web page, CSV, Markdown or JSON lines."""
