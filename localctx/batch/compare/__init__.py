"""Writes what two versions of a document differ in: as text, a web page, CSV, Markdown or JSON lines."""
