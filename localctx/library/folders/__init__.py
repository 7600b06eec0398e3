"""Finds and watches the files of paths and folders."""
