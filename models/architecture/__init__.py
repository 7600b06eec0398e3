"""Reads model configs: layers, shapes and frequencies, without weights."""
