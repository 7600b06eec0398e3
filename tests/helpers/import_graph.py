"""The imports of the repository's modules as a graph: which module imports which, in what order, and any circle."""

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from repository import ROOT

SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]

Graph = Mapping[str, set[str]]
"""The names that each name imports. Every name has an entry."""


def package_folders() -> dict[str, Path]:
    """Returns the folder of every package listed in pyproject.toml, such as kernels/py for localctx.kernels."""

    def place(package: str) -> Path:
        mapped = SETUPTOOLS["package-dir"].get(package)
        return ROOT / mapped if mapped else place(package.rpartition(".")[0]) / package.rpartition(".")[2]

    return {package: place(package) for package in SETUPTOOLS["packages"]}


def modules() -> dict[str, Path]:
    """Returns the file of every module that is shipped, by the module's full name."""
    names = {}
    for package, directory in package_folders().items():
        for path in directory.glob("*.py"):
            names[package if path.stem == "__init__" else f"{package}.{path.stem}"] = path
    return names


def imported(nodes: Iterable[ast.AST], package: str) -> Iterator[str]:
    """Yields the full names that import statements name; ``from a import b`` yields ``a.b``, a module or not."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -(node.level - 1) or None] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def sources() -> dict[str, tuple[str, bool]]:
    """Returns the source of every module, and whether it is a package's ``__init__``."""
    return {name: (path.read_text(), path.stem == "__init__") for name, path in modules().items()}


def import_graph(texts: Mapping[str, tuple[str, bool]]) -> dict[str, set[str]]:
    """Returns which of these modules each one imports, at its top, inside functions or under TYPE_CHECKING."""
    graph = {}
    for name, (text, is_package) in texts.items():
        package = name if is_package else name.rpartition(".")[0]
        targets = {nearest(target, texts) for target in _imported_in(text, package)}
        graph[name] = {target for target in targets if target and target != name}
    return graph


@cache
def _imported_in(text: str, package: str) -> tuple[str, ...]:
    return tuple(imported(ast.walk(ast.parse(text)), package))


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the longest prefix of a dotted name that is a known name, or an empty string."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def circles(graph: Graph) -> list[list[str]]:
    """Returns each group of names that import each other, directly or through others of the group."""
    reached = {name: reachable(graph, name) for name in graph}
    groups = {tuple(sorted({n for n in seen if name in reached[n]})) for name, seen in reached.items()}
    return sorted(list(group) for group in groups if group)


def reachable(graph: Graph, start: str) -> set[str]:
    """Returns what ``start`` imports, directly or not; ``start`` itself only if it is on a circle."""
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(graph[name])
    return seen


def levels(graph: Graph) -> list[list[str]]:
    """Returns the names from bottom to top: every name imports only from lists before its own.

    Names on one circle share a list, so that the order exists while there is one.
    """
    below = {name: reachable(graph, name) for name in graph}
    heights: dict[str, int] = {}
    for name in sorted(graph, key=lambda name: (len(below[name]), name not in below[name])):
        strictly = [other for other in below[name] if name not in below[other]]
        heights[name] = 1 + max((heights[other] for other in strictly), default=-1)
    return [sorted(n for n in graph if heights[n] == h) for h in range(max(heights.values(), default=-1) + 1)]


def room_of(module: str) -> str:
    """Returns the folder that a module belongs to, or the module itself at the top: localctx.kv.cache -> kv."""
    return module.split(".")[1] if "." in module else module


def between_sub_packages(graph: Graph) -> dict[str, set[str]]:
    """Returns which sub-packages import which: localctx.kernels.cpu stands for its modules, others for themselves."""

    def node(name: str) -> str:
        return ".".join(name.split(".")[:3])

    nodes: dict[str, set[str]] = {node(name): set() for name in graph}
    for name, targets in graph.items():
        nodes[node(name)] |= {node(target) for target in targets} - {node(name)}
    return nodes


def between_rooms(graph: Graph) -> dict[str, set[str]]:
    """Returns which rooms the modules of each room import."""
    rooms: dict[str, set[str]] = {room_of(name): set() for name in graph}
    for name, targets in graph.items():
        rooms[room_of(name)] |= {room_of(target) for target in targets} - {room_of(name)}
    return rooms
