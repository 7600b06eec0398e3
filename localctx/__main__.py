"""``python -m localctx`` is the ``localctx`` command."""

from localctx.cli import main

main()
