"""Answers a question from whole documents or from passages, and checks and cites the answer."""
