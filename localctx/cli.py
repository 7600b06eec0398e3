"""The localctx command."""


def main() -> None:
    """Entry point."""
