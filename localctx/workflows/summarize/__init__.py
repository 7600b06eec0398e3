"""Summarizes documents."""
