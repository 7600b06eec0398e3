"""The ``library`` commands."""
