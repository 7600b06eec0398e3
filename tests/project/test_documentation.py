"""The documentation: short where a person begins, whole, and true to the command it describes."""

import re
import shlex
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from repository import ROOT

from localctx import docs
from localctx.cli import cli
from localctx.cli.common import measuring_text
from localctx.models.catalog import load_catalog

FOLDER = ROOT / "localctx" / "docs"
PAGES = sorted(FOLDER.glob("*.md"))
TEXTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "kernels" / "README.md", *PAGES]
TEXTS += sorted((ROOT / ".github").glob("*.md"))

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
TABLE = re.compile(r"^\|[-|: ]+\|$", re.MULTILINE)
ENDS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "(", ")"}  # of one command of a shell

DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
PROCESSOR = re.compile(r"\bAVX|\bcores\b|\bEPYC\b|\bXeon\b|\bRyzen\b|\bApple M\d|\bNVIDIA\b")
COMMAND = re.compile(r"\b(localctx (bench|quality|ask)|python -m pytest|python tests/[\w/]+\.py)\b")


def prose(text: str) -> str:
    """``text`` without its code."""
    return CODE.sub("", FENCE.sub("", text))


# The README


def test_the_readme_has_at_most_200_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


@pytest.mark.parametrize(
    "fact",
    [
        "licence of localctx is Apache-2.0",
        "Python 3.11 or newer",
        "5 GB of disk",
        "listens on 127.0.0.1:7860",
        "default model has half a billion parameters",
        "the default model (once, 491 MB)",
        "exit code for Ctrl-C is 130",
        "`LOCALCTX_HOME` moves the data folder",
        "`localctx doctor` shows versions, memory, the model, and a check of every kept page",
        "is kept on disk",
    ],
)
def test_the_readme_tells_what_people_ask_first(fact):
    assert fact in " ".join((ROOT / "README.md").read_text().split())


def test_the_readme_names_every_page():
    linked = {target for target in LINK.findall((ROOT / "README.md").read_text()) if "/docs/" in target}
    assert linked == {f"localctx/docs/{page.name}" for page in PAGES}


def test_the_text_to_measure_on_is_long_enough_for_8192_tokens():
    text = measuring_text(None)
    assert text.startswith("# localctx")
    assert all(page.read_text() in text for page in PAGES)
    assert len(text) > 5 * 8192


# Links


def anchors(text: str) -> set[str]:
    """What the headings of a Markdown text are called in addresses, as GitHub has it."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return set(map(anchor, headings))


def anchor(heading: str) -> str:
    kept = [c for c in heading.lower() if c in " -_" or unicodedata.category(c)[0] in "LN"]
    return "".join(kept).replace(" ", "-")


def broken(path: Path, text: str) -> Iterator[str]:
    """The links in ``text``, which is at ``path``, that lead to nothing of ours. Other sites are not asked."""
    for target in LINK.findall(prose(text)):
        place, _, part = target.partition("#")
        there = (path.parent / place).resolve() if place else path
        if target.startswith(("http://", "https://")):
            continue
        if not there.is_file() or (part and part not in anchors(text if there == path else there.read_text())):
            yield target


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    assert list(broken(path, path.read_text())) == []


def test_a_link_that_leads_nowhere_is_found():
    text = "# Us & them\n[a](LICENSE) [b](nothing.md) [c](#us--them) [d](#them) [e](README.md#licence) `[f](code.md)`"
    assert list(broken(ROOT / "CHANGELOG.md", text)) == ["nothing.md", "#them"]


# Commands


def commands(text: str) -> Iterator[list[str]]:
    """The words after ``localctx``, or ``packaging/start``, in every line of fenced code; in a console, after ``$``."""
    for language, code in FENCE.findall(text):
        for line in code.replace("\\\n", " ").splitlines():
            if language == "console" and not line.startswith("$ "):
                continue
            yield from called(line.removeprefix("$ "))


def called(line: str) -> Iterator[list[str]]:
    if not re.search(r"\blocalctx |packaging/start ", line):
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[str] | None = None
    for word in [*lexer, ";"]:
        if word in ENDS:
            if found is not None:
                yield found
            found = None
        elif found is not None:
            found.append(word)
        elif word == "localctx" or word.endswith("packaging/start"):
            found = []


def unknown(words: list[str]) -> str | None:
    """What the command line does not know of these words, if anything."""
    context, rest = click.Context(cli, info_name="localctx"), list(words)
    try:
        while isinstance(group := context.command, click.Group) and rest and not rest[0].startswith("-"):
            name, command, rest = group.resolve_command(context, rest)
            assert command
            context = click.Context(command, parent=context, info_name=name)
        _, left, _ = context.command.make_parser(context).parse_args(rest)
    except click.UsageError as e:
        return e.format_message()
    return f"more than {context.command_path} takes: {left}" if left else None


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_the_documentation_exist(path):
    wrong = {" ".join(words): why for words in commands(path.read_text()) if (why := unknown(words))}
    assert wrong == {}


def test_commands_are_found_and_wrong_ones_named():
    text = """
```sh
sh packaging/start frobnicate a.txt
find . | localctx summarize - -o x/ --fast > log  # so
pip install 'localctx[ocr]'
```
```console
$ localctx ask a \\
  --temp 1
localctx nothing
```
```sh
localctx library search "a | b" --top 3 && localctx doctor more
localctx library lose
```
"""
    found = list(commands(text))
    assert [words[0] for words in found] == ["frobnicate", "summarize", "ask", "library", "doctor", "library"]
    assert [bool(unknown(words)) for words in found] == [True, True, True, False, True, True]


# Pages


@pytest.mark.slow
def test_every_page_is_listed_with_its_title_on_one_line(run):
    listed = run("help").stdout.splitlines()
    for page in PAGES:
        title = page.read_text().splitlines()[0]
        assert title.startswith("# ")
        assert len(title) < 90
        assert any(line.split(maxsplit=1) == [page.stem, title.removeprefix("# ")] for line in listed), page.stem


@pytest.mark.slow
@pytest.mark.parametrize("name", docs.topics())
def test_help_prints_a_page(run, name):
    done = run("help", name)
    assert done.returncode == 0
    assert done.stdout.startswith((FOLDER / f"{name}.md").read_text())


@pytest.mark.slow
def test_a_page_that_is_also_a_command_leads_to_its_flags(run):
    assert "models" in cli.commands
    assert run("help", "models").stdout.endswith("see: localctx models --help\n")
    assert "asking" not in cli.commands
    assert "--help" not in run("help", "asking").stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["ask", "doctor", "library search", "help"])
def test_help_about_a_command_is_its_help(run, path):
    done = run("help", *path.split())
    assert done.returncode == 0
    assert done.stdout == run(*path.split(), "--help").stdout


@pytest.mark.slow
@pytest.mark.parametrize("words", [["frobnicate"], ["library", "frobnicate"], ["asking", "more"], ["ask", "more"]])
def test_help_about_nothing_is_one_line_with_the_topics(run, words):
    done = run("help", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert all(name in done.stderr for name in (" ".join(words), *docs.topics()))


@pytest.mark.slow
def test_the_help_of_the_command_leads_to_the_pages(run):
    assert "localctx help" in run("--help").stdout


@pytest.mark.slow
@pytest.mark.parametrize(("lines", "paged"), [(24, True), (5000, False)])
def test_a_long_page_on_a_terminal_is_paged(run, monkeypatch, lines, paged):
    sent: list[str] = []
    monkeypatch.setenv("LINES", str(lines))
    monkeypatch.setattr(click, "echo_via_pager", sent.append)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    done = run("help", "memory")
    assert [*sent, done.stdout] == ([docs.page("memory"), ""] if paged else [docs.page("memory")])


def test_the_models_page_lists_the_catalogue():
    rows = re.findall(r"^\| `([^`]+)` \|", docs.page("models"), re.MULTILINE)
    assert rows == list(load_catalog())


# Measurements


def sections(text: str) -> Iterator[tuple[str, str]]:
    """The title and the text of each ``## `` section."""
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        yield title, body


@pytest.mark.parametrize(("title", "body"), [*sections(docs.page("benchmarks"))])
def test_a_benchmark_says_when_on_what_and_how(title, body):
    if TABLE.search(body):
        assert DATE.search(body), "no date"
        assert PROCESSOR.search(body), "no processor"
        assert COMMAND.search(body), "no command"


def test_tables_of_quality_say_when_and_how():
    measured = [body for _, body in sections(docs.page("quality")) if TABLE.search(body)]
    assert measured
    assert all(DATE.search(body) and COMMAND.search(body) for body in measured)
