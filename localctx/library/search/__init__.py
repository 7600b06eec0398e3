"""Searches documents by words and vectors, and divides text into chunks and sections."""
