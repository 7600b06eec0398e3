"""The seams that CONTRIBUTING lists on one page: every protocol and every table of them exists where it says."""

import ast
import re
from collections.abc import Iterator

import pytest
from repository import ROOT

PAGE = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
WANTED = {"codec", "keeper", "page store", "tier", "engine", "document format", "model family", "setting"}


def seams(page: str) -> dict[str, str]:
    """The protocols of each seam in the page's table, by the seam's name."""
    table = page.partition("| seam |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {row[0].partition(" (")[0]: row[1] for row in rows}


def named(protocols: str) -> Iterator[tuple[str, str]]:
    """Each name with the file it is in: the next one that is named, or in the end the one before."""
    for part in protocols.split(";"):
        words = re.findall(r"`([^`]+)`", part)
        for i, word in enumerate(words):
            files = [file for file in words[i:] if "/" in file] or [file for file in words[:i] if "/" in file][-1:]
            if "/" not in word:
                yield word, files[0]


def defined(file: str) -> set[str]:
    """The classes and constants at the top of a file."""
    found = set[str]()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_page_lists_every_seam():
    assert set(seams(PAGE)) >= WANTED


@pytest.mark.parametrize(("seam", "protocols"), seams(PAGE).items())
def test_what_a_seam_names_exists(seam, protocols):
    places = list(named(protocols))
    assert places
    assert [(name, file) for name, file in places if name not in defined(file)] == []


def test_names_are_read_with_their_files():
    text = "`A` and `B` in `x/y.py`, listed in `C`; `D` in `z/w.py`, listed in `E` in `v/u.py`"
    found = [("A", "x/y.py"), ("B", "x/y.py"), ("C", "x/y.py"), ("D", "z/w.py"), ("E", "v/u.py")]
    assert list(named(text)) == found
