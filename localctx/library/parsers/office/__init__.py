"""Reads Word and PowerPoint files, and has what all office formats share: blocks, lists, drawings."""
