"""How much memory a request needs, and what of it goes where."""
