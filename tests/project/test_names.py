"""One name, one thing: what is called how in the project."""

import ast
from collections import Counter
from collections.abc import Iterator

from import_graph import modules, room_of, sources
from repository import ROOT


def class_names(text: str) -> Iterator[str]:
    """The classes of a module, and its names in CamelCase for types; a TypeVar means nothing by itself."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        if isinstance(node, ast.Assign | ast.AnnAssign) and not is_type_variable(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (t.id for t in targets if isinstance(t, ast.Name) and is_camel_case(t.id))


def is_type_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith(("TypeVar", "ParamSpec"))


def is_camel_case(name: str) -> bool:
    return name.lstrip("_")[:1].isupper() and not name.isupper()


def used_twice(names: dict[str, list[str]]) -> list[str]:
    """The names that more than one module has, each with these modules."""
    count = Counter(name for listed in names.values() for name in set(listed))
    twice = sorted(name for name in count if count[name] > 1)
    return [f"{name}: {', '.join(sorted(m for m in names if name in names[m]))}" for name in twice]


def test_class_names_are_unique_in_the_project():
    found = used_twice({name: list(class_names(text)) for name, (text, _) in sources().items()})
    assert not found, "\n".join(found)


def test_a_name_that_two_modules_have_is_found():
    texts = {
        "a": "class Gate: pass\nPair = tuple[int, int]\nT = TypeVar('T')\nItem = TypeVar('Item')\nLIMIT = 3",
        "b": "class Pair: pass\n_Gate: TypeAlias = int\nT = TypeVar('T')\nItem = TypeVar('Item')\nLIMIT = 4",
        "c": "def f():\n    Pair = 3\nclass Gate(Base):\n    class Pair: pass",
    }
    found = used_twice({name: list(class_names(text)) for name, text in texts.items()})
    assert found == ["Gate: a, c", "Pair: a, b"]


def test_tests_are_in_folders_that_mirror_the_rooms():
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    rooms = {room_of(name) for name in modules()}
    assert folders <= rooms | {"project", "packaging_scripts"}
    files_of_rooms = {name.rpartition(".")[2] for name in modules() if name.count(".") == 1}
    assert {path.stem.removeprefix("test_") for path in (ROOT / "tests").glob("test_*.py")} <= files_of_rooms
