"""Shared by the scripts here: puts the folder of the tests' helpers on the path, and runs a measurement of a script."""

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "helpers"))


def run(doc: str | None, **measurements: Callable[[list[str]], int | None]) -> None:
    """Run the measurement that the command line names, with the other arguments, and exit with what it returns. Without
    a name of one, print ``doc``.
    """
    name, *arguments = sys.argv[1:] or [""]
    if name not in measurements:
        sys.exit(f"{doc}\nname one of: {', '.join(measurements)}")
    sys.argv[0] += f" {name}"  # for --help
    sys.exit(measurements[name](arguments))
