"""Stores encrypted pages in a remote object store."""
