"""The files that models come in, checked before any library opens them."""
