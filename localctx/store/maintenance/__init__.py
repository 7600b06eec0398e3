"""Backup, repair and eviction."""
