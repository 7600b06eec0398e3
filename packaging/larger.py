"""Prints the requirements of the extra ``test-all`` that apply to this platform. With ``--absent``, prints only the
names of packages that are not installed.
"""

import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement

project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]
for text in project["optional-dependencies"]["test-all"]:
    wanted = Requirement(text)
    if wanted.marker and not wanted.marker.evaluate():
        continue
    if "--absent" not in sys.argv:
        print(text)
    elif not any(distributions(name=wanted.name)):
        print(wanted.name)
