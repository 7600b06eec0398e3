"""Answers a question: from whole documents or passages, checked and cited."""
