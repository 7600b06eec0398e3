"""What several tests of commands check: one clear line of error, and where else a data folder may be."""

import os
import re
from pathlib import Path
from subprocess import CompletedProcess

from ask_in_process import command, said, start


def elsewhere(home: Path, *arguments: object, limit: int | None = None) -> CompletedProcess:
    """The command in another process, whose files may grow to ``limit`` bytes: more fails as on a full disk."""
    environment = {**os.environ, "LOCALCTX_HOME": str(home)}
    process, connection = start(command, environment, arguments, limit)
    ((code, out, err),) = said(connection)
    process.join()
    return CompletedProcess(arguments, code, out, err)


def assert_one_line(done: CompletedProcess, code: int, problem: str, remedy: str) -> None:
    assert done.returncode == code
    assert re.fullmatch(rf"localctx: [^\n]*{problem}[^\n]*; [^\n]*{remedy}[^\n]*\n", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
