"""What is declared of a setting: its kind, and what --help, the window and the docs say of it."""

from dataclasses import dataclass, field
from typing import Literal, TypeVar

from localctx.settings.kinds import ValueKind

T = TypeVar("T")

Heading = Literal["Options", "Reading", "Memory", "Sampling", "Engine"]
"""The heading in --help and on the settings page. ``Options`` are those that people use first."""

Group = Literal["General", "Model", "Answers", "Finding passages", "Limits of memory", "Memory page"]
"""The group of fields in the window that a setting is in."""

Commands = Literal["answer", "load", "pages", ""]
"""The commands that take a setting as a flag: those that answer questions, load a model, or store pages of it. "" is
for settings that only some commands name themselves, or none.
"""


@dataclass(frozen=True)
class Shown:
    """A setting's field in the window: its group, its label, and a line below the label."""

    group: Group
    label: str
    info: str = ""


@dataclass(frozen=True)
class Setting:
    """What is declared of a setting.

    ``help`` is its line in --help, without a full stop. ``more`` (Markdown) says on the settings page what values mean;
    ``page`` is the page of the docs with the rest.
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
    """Returns the dataclass field of a setting."""
    setting = Setting(kind, help, section, commands, more, page, shown, default)
    declared: T = field(default=default, metadata={"setting": setting})
    return declared
