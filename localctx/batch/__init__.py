"""Runs a task on many documents, on this machine, a Ray cluster or another server, and writes the results."""
