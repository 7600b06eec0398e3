"""The rules of the house: which way imports go, a home for each library, a tidy top level."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from import_graph import (
    between_sub_packages,
    circles,
    import_graph,
    imported,
    levels,
    modules,
    package_folders,
    sources,
)
from repository import ROOT

# Imports go strictly down, or stay in their room. A name stands for everything below it that is not named itself.
FLOORS = {
    "localctx.__main__": 12,
    "localctx.cli": 11,
    "localctx.ui": 10,
    "localctx.serving.openai_server": 10,
    "localctx.serving": 9,
    "localctx.session": 8,
    "localctx.doctor": 8,
    "localctx.licences": 4,
    "localctx.batch": 8,
    "localctx.batch.ray_cluster": 9,  # each worker has a session
    "localctx.batch.ray_generator": 9,
    "localctx.quality": 8,
    "localctx.bench": 8,
    "localctx.api": 9,
    "localctx.session_chat": 7,
    "localctx.results": 6,
    "localctx.workflows": 5,
    "localctx.engine": 4,
    "localctx.library": 4,
    "localctx.models": 3,
    "localctx.store": 2,
    "localctx.kv": 2,
    "localctx.machine": 2,
    "localctx.kv.pages": 1,
    "localctx.kv.keepers": 1,
    "localctx.kv.attention_history": 1,
    "localctx.uninstall": 2,
    "localctx.update_notice": 3,
    "localctx.error_log": 2,
    "localctx.settings": 1,
    "localctx.budget": 1,
    "localctx.child_process": 2,
    "localctx.idle": 1,
    "localctx.docs": 0,
    "localctx.document_parts": 0,
    "localctx.kernels": 0,
    "localctx.errors": 0,
    "localctx.file_names": 0,
    "localctx.shape": 0,
    "localctx.system": 0,
    "localctx.network": 0,
    "localctx.version": 0,
    "localctx": 13,  # the public API, imported when it is used
}
SAME_FLOOR = {
    ("localctx.store", "localctx.kv"),
    ("localctx.network", "localctx.errors"),
}  # the store knows the format of pages

MOST_MODULES = 26  # of a package, with its __init__

# Every third-party library has one home, so that replacing it touches one room. Tensors and arrays are common ground.
EVERYWHERE = {"torch", "numpy"}
HOMES = {
    "accelerate": "models",
    "bitsandbytes": "models",
    "blake3": "models",
    "gguf": "models",
    "httpx": "batch",
    "h11": "serving",
    "jinja2": "models",
    "huggingface_hub": "models",
    "llama_cpp": "models",
    "llguidance": "models",
    "mcp": "serving",
    "safetensors": "models store",
    "tokenizers": "models",
    "transformers": "models",
    "sqlite_utils": "store",
    "xxhash": "store",
    "filelock": "store models",
    "fsspec": "store",
    "cryptography": "store",
    "psutil": "budget idle",
    "platformdirs": "settings",
    "tomlkit": "settings",
    "llvmlite": "kernels",
    "numba": "kernels",
    "triton": "kernels",
    "gradio": "ui",
    "fastapi": "ui",  # gradio brings these
    "starlette": "ui serving",
    "uvicorn": "serving",
    "click": "cli",
    "matplotlib": "quality bench",
    "markdown_it": "ui",
    "tqdm": "cli",
    "charset_normalizer": "library",
    "py3langid": "library",
    "pypdfium2": "library",
    "lxml": "library",
    "python_calamine": "library",
    "dateparser": "library",
    "price_parser": "library",
    "xlsxwriter": "batch",
    "rapidfuzz": "library",
    "rapidocr": "library",
    "ray": "batch",
    "selectolax": "library",
    "spellchecker": "library",
    "watchfiles": "library",
}


# --- Which way imports go


def room(name: str) -> str:
    """The longest entry of FLOORS that the name is, or is below."""
    while name not in FLOORS:
        name = name.rpartition(".")[0]
    return name


def folder(name: str) -> str:
    return ".".join(name.split(".")[:2])


def goes_down(importer: str, target: str) -> bool:
    here, there = room(importer), room(target)
    if folder(here) == folder(there):
        return FLOORS[there] <= FLOORS[here]
    return FLOORS[there] < FLOORS[here] or (here, folder(there)) in SAME_FLOOR


def objection(importer: str, target: str) -> str | None:
    """Why this module may not import that name, or None if it may."""
    library = target.split(".")[0]
    if library == "localctx":
        return None if goes_down(importer, target) else f"{importer} imports {target}, which is not below it"
    if library in sys.stdlib_module_names | EVERYWHERE:
        return None
    if library not in HOMES:
        return f"{importer} imports {library}, which has no home: give it one in HOMES"
    at_home = folder(importer).removeprefix("localctx.") in HOMES[library].split()
    return None if at_home else f"{importer} imports {library}, whose home is {HOMES[library]}"


def objections(module: str, source: str, *, is_package: bool = False) -> list[str]:
    package = module if is_package else module.rpartition(".")[0]
    targets = imported(ast.walk(ast.parse(source)), package)
    return [why for target in targets if (why := objection(module, target))]


def run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What importing a module executes: all of it but the bodies of functions and of `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not typing_only and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from run_at_import(child)


def test_imports_go_down():
    found = [
        why
        for name, path in modules().items()
        for why in objections(name, path.read_text(), is_package=path.stem == "__init__")
    ]
    assert not found, "\n".join(found)


def test_every_module_has_a_floor():
    lost = [name for name in modules() if name != "localctx" and room(name) == "localctx"]
    assert not lost, f"no floor in FLOORS: {lost}"


def test_the_command_imports_nothing_of_ours_until_it_must():
    command = {name: path for name, path in modules().items() if room(name) == "localctx.cli"}
    light = command.keys() - {"localctx.cli.terminal", "localctx.cli.progress"}
    for name in light:
        tree = ast.parse(command[name].read_text())
        ours = {target for target in imported(run_at_import(tree), name) if target.split(".")[0] == "localctx"}
        small = {"localctx.version", "localctx.errors", "localctx.file_names", "localctx.settings", "localctx.cli"}
        assert {room(target) for target in ours} <= small, name
        assert not any(target.startswith("localctx.cli.terminal") for target in ours), name


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("localctx.kernels.reference", "import localctx.errors"),
        ("localctx.kernels", "from localctx import shape"),
        ("localctx.shape", "from localctx.errors import UserError"),
        ("localctx.settings", "from localctx.budget import measure"),
        ("localctx.kv.pages", "from localctx.kv.codecs import Int8"),
        ("localctx.kv.keepers", "from . import cache"),
        ("localctx.kv.cache", "from ..models import load"),
        ("localctx.store.pages.stored_pages", "from ...models import fingerprint"),
        ("localctx.kv.tiers", "from localctx.store import Store"),
        ("localctx.models.load", "def f():\n    from localctx.engine.events import Token"),
        ("localctx.engine.planning.plan", "from localctx import library"),
        ("localctx.session", "if True:\n    import localctx.cli as top"),
        ("localctx.engine.planning.plan", "import transformers.cache_utils"),
        ("localctx.session", "from click import echo"),
        ("localctx.engine.planning.plan", "import left_pad"),
    ],
)
def test_an_import_that_breaks_the_rules_is_found(module, source):
    assert len(objections(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("localctx.kv.cache", "from localctx.kv.pages import Page\nfrom .codecs import Int8\nfrom .. import shape"),
        ("localctx.kv.pages", "from .keepers import Full"),
        (
            "localctx.store.pages.stored_pages",
            "from localctx.store.pages.slot_file import SlotFile\nimport xxhash, sqlite_utils.db",
        ),
        (
            "localctx.engine.planning.plan",
            "from localctx.store import Store\nfrom .events import Planned\nimport os.path, torch",
        ),
        ("localctx.models.load", "from localctx.version import __version__\nimport filelock"),
        ("localctx.__main__", "from localctx.cli import main"),
    ],
)
def test_an_import_that_keeps_the_rules_is_not(module, source):
    assert objections(module, source) == []


def test_relative_imports_of_a_package_start_in_it():
    assert objections("localctx.kv", "from .cache import Cache", is_package=True) == []
    assert objections("localctx.kv", "from ..store import Store", is_package=True) != []


def test_the_start_of_a_module_is_told_from_its_functions():
    source = "import a\nif TYPE_CHECKING:\n    import b\ntry:\n    import c\nfinally:\n    pass\ndef f():\n    import d"
    assert list(imported(run_at_import(ast.parse(source)), "")) == ["a", "c"]


# --- No circles


def circles_in(texts: dict[str, str]) -> list[list[str]]:
    return circles(import_graph({name: (text, name in PACKAGES) for name, text in texts.items()}))


PACKAGES = {"localctx", "localctx.kv"}  # of the made-up sources below


def test_no_modules_import_each_other():
    """At file level in the whole tree. Imports inside functions and under TYPE_CHECKING count."""
    found = circles(import_graph(sources()))
    assert not found, "\n".join(" <-> ".join(circle) for circle in found)


def test_no_sub_packages_import_each_other():
    found = circles(between_sub_packages(import_graph(sources())))
    assert not found, "\n".join(" <-> ".join(circle) for circle in found)


def test_sub_packages_that_import_each_other_are_found():
    cpu, sketch = "localctx.kernels.cpu", "localctx.kernels.sketch"
    graph = {f"{cpu}.decode": {"localctx.kernels.llvm.simd"}, f"{cpu}.linear": {sketch}, sketch: set[str]()}
    graph |= {"localctx.kernels.llvm.simd": set(), "localctx.kernels.llvm.ranking": {f"{cpu}.linear"}}
    assert circles(between_sub_packages(graph)) == [[cpu, "localctx.kernels.llvm"]]


@pytest.mark.parametrize(
    "back",
    [
        "from localctx.kv.cache import Cache",
        "import localctx.kv.cache",
        "from . import cache",
        "from .cache import Cache as C",
        "def f():\n    from localctx.kv import cache",
        "if TYPE_CHECKING:\n    from localctx.kv.cache import Cache",
    ],
)
def test_a_circle_is_found_however_it_is_imported(back):
    sources = {"localctx.kv.cache": "from localctx.kv.pool import Pool", "localctx.kv.pool": back}
    assert circles_in(sources) == [["localctx.kv.cache", "localctx.kv.pool"]]


def test_a_circle_through_other_rooms_is_found():
    sources = {
        "localctx.session": "from localctx.workflows.answer import ask",
        "localctx.workflows.answer.ask": "from localctx.kv.pool import Pool",
        "localctx.kv.pool": "from localctx.session import Session",
        "localctx.errors": "",
        "localctx.cli": "from localctx.session import Session",
    }
    assert circles_in(sources) == [["localctx.kv.pool", "localctx.session", "localctx.workflows.answer.ask"]]


def test_two_circles_are_told_apart():
    assert circles({"a": {"b"}, "b": {"a"}, "c": {"a", "d"}, "d": {"c"}}) == [["a", "b"], ["c", "d"]]


def test_a_package_that_imports_what_imports_the_package_is_a_circle():
    cache = "from localctx.kv import SIZE"
    sources = {"localctx.kv": "from localctx.kv.cache import Cache", "localctx.kv.cache": cache}
    assert circles_in(sources) == [["localctx.kv", "localctx.kv.cache"]]


def test_imports_that_go_down_are_no_circle():
    sources = {
        "localctx.kv": "from localctx.kv.cache import Cache",
        "localctx.kv.cache": "from .pool import Pool\nfrom ..errors import UserError\nimport localctx.kv.cache",
        "localctx.kv.pool": "from localctx import errors",
        "localctx.errors": "",
    }
    assert circles_in(sources) == []
    order = levels(import_graph({name: (text, name in PACKAGES) for name, text in sources.items()}))
    assert order == [["localctx.errors"], ["localctx.kv.pool"], ["localctx.kv.cache"], ["localctx.kv"]]


def test_levels_put_a_circle_on_one_level():
    assert levels({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["d"], ["b", "c"], ["a"]]


# --- Folders


@cache
def files() -> list[Path]:
    """What git has, or would have after `git add`: relative paths."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [Path(name) for name in os.fsdecode(listing.stdout).split("\0") if name and (ROOT / name).is_file()]


def test_the_package_list_is_what_is_on_disk():
    on_disk = {path.parent for path in files() if path.name == "__init__.py"}
    assert {folder.relative_to(ROOT) for folder in package_folders().values()} == on_disk


def test_no_package_has_more_modules_than_one_reads_at_a_glance():
    sizes = {name: len(list(folder.glob("*.py"))) for name, folder in package_folders().items()}
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES} == {}


def test_files_that_would_shadow_something_are_absent():
    # kernels/ and packaging/ are also packages that others import; a root conftest.py would put the root on sys.path.
    assert {Path("kernels/__init__.py"), Path("packaging/__init__.py"), Path("conftest.py")}.isdisjoint(files())


def test_the_top_level_is_fixed():
    folders = {"localctx", "ui", "kernels", "models", "tests", "packaging"}
    top = {path.parts[0] for path in files() if not path.parts[0].startswith(".")}
    assert top <= folders | {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}


def test_nothing_mentions_the_place_where_it_was_written():
    places = [b"/" + b"work/", b"/" + b"tmp/bash_jobs"]
    assert [path for path in files() if any(place in (ROOT / path).read_bytes() for place in places)] == []
