"""Lists options of a command under headings, and makes options from the declarations of settings."""

from collections.abc import Callable, Iterable
from typing import Any, get_args

import click
from click.types import OptionHelpExtra

from localctx.settings.declaration import Heading, Setting
from localctx.settings.kinds import parse_setting
from localctx.settings.table import SETTINGS

HEADINGS = get_args(Heading)
FIRST = HEADINGS[0]  # the heading of the options that people use first
WIDEST = 23  # characters of the column of options; wider ones have a line of their own
LONGEST_DEFAULT = 8  # characters; longer defaults are on the settings page only


class SectionOption(click.Option):
    """A click option with a section, the heading under which --help lists it."""

    def __init__(self, *args: Any, section: str = FIRST, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Returns the text in brackets that --help prints after an option. Ranges of numbers are left out, because
        errors name them.
        """
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


class SectionedCommand(click.Command):
    """A command whose --help lists the most used options first, and all other options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of the options, section by section. All help texts begin at the same column."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record:
                sections.setdefault(getattr(param, "section", FIRST), []).append(record)
        flags = [flag for rows in sections.values() for flag, _ in rows]
        width = max(len(flag) for flag in flags if len(flag) <= WIDEST)
        for section, rows in sorted(sections.items(), key=lambda item: _place(item[0])):
            with formatter.section(section):
                formatter.write_dl([(flag.ljust(width), line) for flag, line in rows], col_max=width)


def _place(heading: str) -> float:
    """Returns the position of a heading in --help.

    The headings of a command's own options come after the first heading of the settings.
    """
    return HEADINGS.index(heading) if heading in HEADINGS else 0.5


class SettingType(click.ParamType):
    """A click type for the flag of a setting. It parses values as the environment and the settings file do."""

    def __init__(self, name: str, setting: Setting) -> None:
        self.name, self._kind = name, setting.kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the setting's value. Raises UsageError."""
        return parse_setting(self.name, self._kind, value)


def option(*names: str, section: str = FIRST, **options: Any) -> Callable:
    """Returns a decorator that adds an option to a command, under the heading ``section``. The option is not a setting.
    ``options`` are arguments of ``click.option``.
    """
    return click.option(*names, cls=SectionOption, section=section, **options)


def address_options(port: int) -> Callable:
    """Returns the decorator that adds --host and --port. The default port is ``port``."""

    def add(command: Callable) -> Callable:
        ports, free = click.IntRange(0, 65535), f"Port; 0 takes a free one ({port})."
        here = "Address to listen on; the default is this machine."
        command = option("--port", default=port, type=ports, metavar="N", help=free)(command)
        return option("--host", default="127.0.0.1", metavar="NAME", help=here)(command)

    return add


def setting_option(name: str, **changes: Any) -> Callable:
    """Returns the decorator that adds the flag of the setting ``name``.

    ``changes`` are arguments of the option that replace those from the setting's declaration.
    """
    setting = SETTINGS[name]
    options: dict[str, Any] = {
        "section": setting.section,
        "type": SettingType(name, setting),
        "metavar": setting.kind.metavar,
        "help": help_line(setting),
    }
    return option(f"--{name.replace('_', '-')}", **options | changes)


def setting_options(names: Iterable[str]) -> Callable:
    """Returns the decorator that adds the flags of settings in the order of ``names``."""

    def add(command: Callable) -> Callable:
        for name in reversed(list(names)):
            command = setting_option(name)(command)
        return command

    return add


def help_line(setting: Setting) -> str:
    """Returns the line of --help about a setting, with its default in brackets if the line does not name it."""
    named = setting.default in ("auto", "", 0, None) or len(str(setting.default)) > LONGEST_DEFAULT
    return f"{setting.help}." if named else f"{setting.help} ({str(setting.default).removesuffix('.0')})."
