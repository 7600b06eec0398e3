"""Reads documents that are plain text with marks in it: Markdown, LaTeX, notebooks, subtitles."""
