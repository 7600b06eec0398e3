"""The ``localctx`` command, also as ``python -m localctx``. Ctrl-C at any time, even during start-up, ends it with one
line instead of a traceback.
"""

import os
import signal

STOPPED = 130  # exit code that a shell reports after Ctrl-C


def main() -> None:
    """Run the command."""
    signal.signal(signal.SIGINT, _stop)
    from localctx.cli import main as run_command  # takes time, in which Ctrl-C may come
    from localctx.system import interrupt

    signal.signal(signal.SIGINT, interrupt)
    run_command()


def _stop(signum: int, frame: object) -> None:
    os.write(2, b"localctx: stopped\n")
    os._exit(STOPPED)


if __name__ == "__main__":
    main()
