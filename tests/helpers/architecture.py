"""Writes the generated part of localctx/docs/architecture.md: python tests/helpers/architecture.py [--write]

It is made from the imports of every module (a picture of the rooms in layers, and tables of what each room and each of
its sub-packages is for) and from a run of the command (the files between a question and a token). Tests compare the
page with both. Without --write the part is printed.
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence

from import_graph import Graph, between_rooms, import_graph, levels, modules, package_folders, sources
from repository import ROOT

PAGE = ROOT / "localctx" / "docs" / "architecture.md"
FROM_IMPORTS, FROM_A_RUN, END = "<!-- from the imports -->", "<!-- from a run -->", "<!-- end of the made part -->"
TOP = {"localctx", "__main__"}  # what has no box: the name that users import, and `python -m localctx`
WIDTH = 72  # characters; a wider layer is drawn in several rows of boxes

PATHS = {
    "ask": "From `localctx ask` down to the model's attention, and back with the first token",
    "page": "From a page's sealing to its file, and from the file back into a cache",
    "window": "From a question in the window, through the worker, to attention and back with the first token",
}


def from_imports(graph: Graph) -> str:
    """Returns what the imports say: the picture, the table of rooms, and that of their sub-packages."""
    rooms = {room: targets - TOP for room, targets in between_rooms(graph).items() if room not in TOP}
    parts = ["```text", *picture(levels(rooms)), "```", "", *table(rooms), "", "### Sub-packages", ""]
    return "\n".join([*parts, *sub_packages()])


def picture(layers: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a picture: rows of boxes for each layer, the highest layer first."""
    for number, layer in reversed(list(enumerate(layers))):
        for row, label in rows(layer, f"{number:>2}"):
            boxes = "   ".join(f"┌─{'─' * len(room)}─┐" for room in row)
            yield f"    {boxes}"
            yield f"{label}  {'   '.join(f'│ {room} │' for room in row)}"
            yield f"    {boxes.translate(str.maketrans('┌┐', '└┘'))}"
        if number:
            yield "    ▼"


def rows(layer: Sequence[str], label: str) -> Iterator[tuple[list[str], str]]:
    """Yields the rooms of a layer in rows of at most WIDTH characters; the label stands before the first row."""
    row: list[str] = []
    for room in layer:
        if row and sum(len(other) + 7 for other in [*row, room]) > WIDTH:
            yield row, label
            row, label = [], "  "
        row.append(room)
    yield row, label


def table(rooms: Graph) -> Iterator[str]:
    """Yields a table of the rooms, the highest first: where each one is, what it is for, and what it imports."""
    yield from ("| layer | where | what it is for | what it imports of ours |", "|---|---|---|---|")
    for number, layer in reversed(list(enumerate(levels(rooms)))):
        for room in layer:
            imports = ", ".join(sorted(rooms[room])) or "nothing"
            yield f"| {number} | `{place(room)}` | {purpose(room)} | {imports} |"


def sub_packages() -> Iterator[str]:
    """Yields a table of the rooms' sub-packages: where each one is, its number of files, and what it is for."""
    yield from ("| where | files | what it is for |", "|---|---|---|")
    for name, folder in sorted(package_folders().items(), key=lambda item: item[1]):
        if name.count(".") > 1:
            room = name.removeprefix("localctx.")
            yield f"| `{place(room)}` | {len(list(folder.glob('*.py'))) - 1} | {purpose(room)} |"


def place(room: str) -> str:
    """Returns where a room is in the repository: kernels/py/ for kernels, localctx/session.py for session."""
    path = modules()[f"localctx.{room}"].relative_to(ROOT)
    return f"{path.parent}/" if path.stem == "__init__" else str(path)


def purpose(room: str) -> str:
    """Returns the first sentence of a room's docstring."""
    docstring = ast.get_docstring(ast.parse(sources()[f"localctx.{room}"][0])) or ""
    return " ".join(docstring.split()).partition(". ")[0].rstrip(".").replace("``", "`") + "."


def from_a_run(paths: Mapping[str, Sequence[str]]) -> str:
    """Returns the files of each measured path, in the order in which they are first reached."""
    parts = []
    for name, title in PATHS.items():
        parts += [f"{title}: {len(paths[name])} files.", "", "```text", *paths[name], "```", ""]
    return "\n".join(parts).rstrip()


def made_parts(text: str) -> tuple[str, str]:
    """Returns the two made parts of a page."""
    first, second = text.partition(FROM_IMPORTS)[2].partition(FROM_A_RUN)[::2]
    return first.strip(), second.partition(END)[0].strip()


def with_parts(text: str, imports: str, run: str) -> str:
    """Returns a page with its made parts replaced."""
    before, _, rest = text.partition(FROM_IMPORTS)
    after = rest.partition(END)[2]
    return f"{before}{FROM_IMPORTS}\n\n{imports}\n\n{FROM_A_RUN}\n\n{run}\n\n{END}{after}"


def main() -> None:
    sys.path.append(str(ROOT / "tests" / "measure"))
    from measure_layers import measure

    imports = from_imports(import_graph(sources()))
    run = from_a_run({name: path.files for name, path in measure().items()})
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_parts(PAGE.read_text(), imports, run))
    else:
        print(f"{imports}\n\n{run}")


if __name__ == "__main__":
    main()
