"""Converts files to text: one parser for each format, run in a child process with limits."""
