"""What people who change the code rely on: hooks that call what the tests call, and papers that name what there is."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from repository import FORMAT, LINT, ROOT

HOOKS = {
    hook["id"]: hook
    for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repository["hooks"]
}
PAPERS = [ROOT / "README.md", ROOT / "kernels" / "README.md", *sorted((ROOT / "localctx" / "docs").glob("*.md"))]
PAPERS += [ROOT / ".github" / name for name in ("CONTRIBUTING.md", "SECURITY.md")]

OURS = r"(?:localctx|models|kernels|ui|tests|packaging)/[\w./-]*\.(?:py|sh|md|toml|css|js)|\.github/[\w.-]+"
FILE = re.compile(rf"(?<![\w./-])(?:{OURS})(?![\w/])")


def test_hooks_call_what_the_tests_call():
    entries = {name: shlex.split(hook["entry"]) for name, hook in HOOKS.items()}
    python = [".venv/bin/python", "-m"]
    assert entries["lint"] == [*python, *LINT]
    assert entries["format"] == [*python, *FORMAT]
    assert entries["house"] == [
        *python,
        "pytest",
        "-q",
        "-n",
        "0",
        *(f"tests/project/test_{name}.py" for name in ("house", "wheel_and_types")),
    ]
    assert (ROOT / entries["house"][-1]).is_file()


def test_hooks_download_nothing_and_look_at_the_whole_tree():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    assert all(hook["language"] == "system" and hook["pass_filenames"] is False for hook in HOOKS.values())


def absent(text: str) -> list[str]:
    """The files of ours that a text names and that do not exist."""
    return sorted({name for name in FILE.findall(text) if not (ROOT / name).is_file()})


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(path):
    assert absent(path.read_text()) == []


def test_files_of_the_kernels_that_their_readme_names_exist():
    named = re.findall(r"`(py/\w+\.py)`", (ROOT / "kernels" / "README.md").read_text())
    assert named
    assert [name for name in named if not (ROOT / "kernels" / name).is_file()] == []


def test_every_measurement_has_its_question():
    folder = ROOT / "tests" / "measure"
    scripts = {path.name for path in folder.glob("*.py")} - {"harness.py"}
    asked = re.findall(r"^\| `(\w+\.py)` \| .+\?.* \|$", (folder / "README.md").read_text(), re.MULTILINE)
    assert sorted(asked) == sorted(scripts)


def test_a_file_that_does_not_exist_is_found():
    text = "`localctx/kv/cache.py` and localctx/kv/rows.py, models/step.py. reports/models/x.py tests/nothing.py#L3"
    assert absent(text) == ["localctx/kv/rows.py", "models/step.py", "tests/nothing.py"]


def test_what_contributors_look_for_is_there():
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
    for folder in sorted(path.parent for path in (ROOT / "localctx").glob("*/__init__.py")):
        assert f"`localctx/{folder.name}/`" in text, folder.name
    for name in ("models", "kernels/py", "ui", "tests", "packaging"):
        assert f"`{name}/`" in text, name


def test_security_names_no_mail_address():
    assert "@" not in Path(ROOT / ".github" / "SECURITY.md").read_text()
