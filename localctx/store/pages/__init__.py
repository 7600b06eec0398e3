"""Stores KV pages and snapshots on disk, and verifies each before use."""
