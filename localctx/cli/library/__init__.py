"""The commands about the library."""
