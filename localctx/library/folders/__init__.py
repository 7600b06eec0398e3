"""Paths and watched folders to files."""
