"""Runs a task on many documents: on this machine, on a Ray cluster, or with another server, and writes the results."""
