"""Processes that end with a test that fails."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def opened(*command: object, **how: object) -> Iterator[subprocess.Popen]:
    """A process, which ends with a test that fails: ``Popen`` itself would wait for it, for ever perhaps."""
    with subprocess.Popen(*command, **how) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
