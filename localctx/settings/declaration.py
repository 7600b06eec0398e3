"""Defines what a setting declares: its kind of value, and its texts for --help, the window and the docs."""

from dataclasses import dataclass, field
from typing import Literal, TypeVar

from localctx.settings.kinds import ValueKind

T = TypeVar("T")

Heading = Literal["Options", "Reading", "Memory", "Sampling", "Engine"]
"""The heading of a setting in --help and on the settings page. ``Options`` is for the most used settings."""

Group = Literal["General", "Model", "Answers", "Finding passages", "Limits of memory", "Memory page"]
"""The group of fields in the window that has the setting's field."""

Commands = Literal["answer", "load", "pages", ""]
"""The commands that have a setting as a flag: all commands that answer questions, load a model, or store pages.

"" is for a setting that is not a flag, or that single commands add themselves.
"""


@dataclass(frozen=True)
class Shown:
    """How the window shows a setting: the group of its field, its label, and a line below the label."""

    group: Group
    label: str
    info: str = ""


@dataclass(frozen=True)
class Setting:
    """The declaration of a setting.

    ``help`` is the setting's line in --help, without a full stop. ``more`` (Markdown) explains its values on the
    settings page. ``page`` is the page of the docs with the details.
    """

    kind: ValueKind
    help: str
    section: Heading
    commands: Commands
    more: str
    page: str
    shown: Shown | None
    default: object


def declare(
    default: T,
    kind: ValueKind,
    help: str,
    section: Heading,
    commands: Commands = "",
    *,
    more: str = "",
    page: str = "",
    shown: Shown | None = None,
) -> T:
    """Returns a dataclass field that declares a setting. The arguments are the fields of Setting."""
    setting = Setting(kind, help, section, commands, more, page, shown, default)
    declared: T = field(default=default, metadata={"setting": setting})
    return declared
