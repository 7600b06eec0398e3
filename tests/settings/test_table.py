"""The table of settings: what is declared once is what is checked, shown in --help and the window, and documented."""

import sys
from dataclasses import fields

import click
import pytest
from click.testing import CliRunner
from repository import ROOT

from localctx.cli import cli
from localctx.cli.sections import SectionedCommand, help_line
from localctx.errors import UsageError
from localctx.settings import SETTINGS, Settings, load_settings, save_settings, variable, with_changes
from localctx.settings.kinds import Choice, Number, Size, Switch, Text, one_of

sys.path.insert(0, str(ROOT / "packaging"))
from settings_page import PAGE, made_part, tables

WRONG = {
    "mode": "fast",
    "kv": "int9",
    "offline": "maybe",
    "max_tokens": 0,
    "temperature": "hot",
    "top_p": float("nan"),
    "top_k": float("inf"),
    "seed": "lucky",
    "memory": "plenty",
    "prompts": "some",
    "rope": "yarn",
    "reading": "sparse:7",
}
FIRST_OF_ASK = (
    *("--library", "--until", "--no-keep", "--mode", "--max-tokens"),
    *("--model", "--json", "--quiet", "--offline", "--help"),
)
SECTIONED = [name for name, command in cli.commands.items() if isinstance(command, SectionedCommand)]


def help_of(*words: str) -> str:
    return CliRunner().invoke(cli, [*words, "--help"], env={"COLUMNS": "80"}).output


def test_every_setting_is_declared():
    assert [f.name for f in fields(Settings)] == ["home", *SETTINGS]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_default_is_a_value_that_is_accepted(name):
    setting = SETTINGS[name]
    assert setting.kind.parse(setting.default) == setting.default


@pytest.mark.parametrize("name", SETTINGS)
def test_the_help_of_a_setting_is_one_line_at_80_columns(name):
    assert len(help_line(SETTINGS[name])) <= 53
    assert not SETTINGS[name].help.endswith(".")


def test_the_settings_page_has_the_table():
    assert made_part(PAGE.read_text()) == tables().strip(), "python packaging/settings_page.py --write"


@pytest.mark.parametrize(("name", "value"), WRONG.items())
def test_one_wording_says_what_a_setting_accepts_and_where_the_wrong_value_is(tmp_path, monkeypatch, name, value):
    says = f"{name} = {value!r} is not valid; use {SETTINGS[name].kind.accepts}"
    with pytest.raises(UsageError) as flag:
        load_settings(home=tmp_path, **{name: value})
    assert str(flag.value) == says
    with pytest.raises(UsageError) as change:
        with_changes(Settings(tmp_path), {name: value})
    assert str(change.value) == says
    monkeypatch.setenv(variable(name), str(value))
    with pytest.raises(UsageError, match=r"^the environment: "):
        load_settings(home=tmp_path)


def test_a_wrong_line_of_the_file_is_named_with_the_file(tmp_path):
    (tmp_path / "settings.toml").write_text('mode = "fast"\n')
    with pytest.raises(UsageError) as error:
        load_settings(home=tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'settings.toml'}: mode = 'fast' is not valid; use auto, ")
    assert load_settings(home=tmp_path, mode="full").mode == "full", "a flag wins over a wrong line"
    save_settings(tmp_path, {"mode": "retrieve"})
    assert load_settings(home=tmp_path).mode == "retrieve"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Choice.of("a", "b"), ["a", "b"], ["A", "", "c"]),
        (Switch(), ["on", "OFF", "1", "no"], ["", "2"]),
        (Number(1, 3), [1, 3], ["0", 4, None, "x"]),
        (Number(0, 1, whole=False), [0.0, 0.5, 1.0], [-0.1, "nan"]),
        (Number(0, 1, optional=True), [None, 1], [2]),
        (Size(("auto", "off")), ["auto", "off", "4GiB"], ["on", "4 apples"]),
        (Text(("x",), str.isupper), ["ABC"], ["abc"]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_a_kind_accepts_its_values_and_no_others(kind, good, bad):
    assert [kind.parse(value) for value in good] == good
    for value in bad:
        with pytest.raises((ValueError, TypeError)):
            kind.parse(value)


def test_words_are_joined_as_in_a_sentence():
    assert [one_of(["a"]), one_of(["a", "b"]), one_of(["a", "b", "c"])] == ["a", "a or b", "a, b or c"]


# --help


def test_ask_lists_the_ten_options_that_people_use_first():
    first = help_of("ask").partition("\nOptions:\n")[2].partition("\n\n")[0].splitlines()
    assert [next(word for word in line.split() if word.startswith("--")) for line in first] == list(FIRST_OF_ASK)


def test_the_other_options_are_under_headings():
    headings = [line for line in help_of("ask").splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options:", "Reading:", "Memory:", "Sampling:", "Engine:"]


@pytest.mark.parametrize("name", SECTIONED)
def test_no_option_is_lost(name):
    lines, command = help_of(name).splitlines(), cli.commands[name]
    for option in command.params:
        if isinstance(option, click.Option):
            assert sum(line.lstrip().startswith((option.opts[0], *option.secondary_opts)) for line in lines), option


def test_a_flag_takes_what_the_settings_file_takes():
    options = {option.name: option for option in cli.commands["ask"].params}
    assert options["temperature"].type.convert("0.5", None, None) == 0.5
    with pytest.raises(UsageError, match="temperature = 'hot' is not valid"):
        options["temperature"].type.convert("hot", None, None)


# The window


def test_the_window_shows_the_settings_that_have_a_label():
    from localctx.ui.settings_fields import FIELDS

    assert {field.name for field in FIELDS} == {name for name, setting in SETTINGS.items() if setting.shown}
    mode = next(field for field in FIELDS if field.name == "mode")
    assert mode.build().choices == [(label, value) for value, label in SETTINGS["mode"].kind.labels.items()]
