"""Reads OpenDocument texts and presentations into blocks."""
