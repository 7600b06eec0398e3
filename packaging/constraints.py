"""Writes packaging/constraints.txt, the list of tested versions: ``python packaging/constraints.py``.

It lists every package that localctx needs without its extras, with the version installed in the environment that runs
this script. Run it in the environment where the tests passed.
"""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]


def needed(requirements: list[str]) -> dict[str, str]:
    """Returns the installed version of each package that ``requirements`` need, directly or through other packages, by
    the package's normalized name.
    """
    found, queue = dict[str, str](), [Requirement(line) for line in requirements]
    seen = set[tuple[str, str]]()
    while queue:
        wanted = queue.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        for extra in wanted.extras or {""}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                installed = distribution(wanted.name)
            except PackageNotFoundError:  # a CPU build of torch does not need CUDA's libraries, for example
                continue
            found[name] = installed.version.partition("+")[0]
            further = map(Requirement, installed.requires or ())
            queue += [r for r in further if r.marker is None or r.marker.evaluate({"extra": extra})]
    return found


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = needed(project["dependencies"])
    head = "# Tested versions. Use them with: pip install --constraint packaging/constraints.txt localctx\n"
    head += "# Written by packaging/constraints.py.\n"
    lines = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))
    (ROOT / "packaging" / "constraints.txt").write_text(head + lines)


if __name__ == "__main__":
    main()
