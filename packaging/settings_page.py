"""Writes the tables of localctx/docs/settings.md: python packaging/settings_page.py [--write]

The tables are made from the declarations of the settings, one for each section. A test compares them with the page.
Without --write they are printed.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from localctx.settings import SETTINGS
from localctx.settings.declaration import Setting
from localctx.settings.kinds import Choice, Number, ValueKind

PAGE = Path(__file__).parent.parent / "localctx" / "docs" / "settings.md"
START, END = "<!-- from the table of settings -->", "<!-- end of the made part -->"
TITLES = {"Options": "Common settings"}


def tables() -> str:
    """Returns the tables of all settings as Markdown, each under its heading."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for section in dict.fromkeys(setting.section for setting in SETTINGS.values()):
        yield from (f"## {TITLES.get(section, section)}", "")
        yield from ("| setting | default | meaning |", "|---|---|---|")
        for name, setting in SETTINGS.items():
            if setting.section == section:
                yield f"| `{name}` | {_default(setting)} | {_meaning(setting)} |"
        yield ""


def _default(setting: Setting) -> str:
    if setting.default in ("", None):
        return "(none)"
    return f"`{setting.default}`" if isinstance(setting.default, str) else f"{setting.default:g}"


def _meaning(setting: Setting) -> str:
    said = f"{setting.help}. {setting.more}".strip()
    topic = setting.page.partition(".")[0].replace("-", " ")
    link = f"See [{topic}]({setting.page})." if setting.page else ""
    return " ".join(filter(None, (said, _values(setting.kind, said), link)))


def _values(kind: ValueKind, said: str) -> str:
    """Returns the accepted values as a sentence: the range of a number, or the words of a choice unless ``said`` has
    all of them. Else returns an empty text.
    """
    if isinstance(kind, Number) and not kind.optional:
        return f"From {kind.low:,} to {kind.high:,}."
    if isinstance(kind, Choice) and any(word not in said for word in kind.labels):
        return f"One of: {kind.accepts}."
    return ""


def made_part(text: str) -> str:
    """Returns the generated part of a page: the text between START and END."""
    return text.partition(START)[2].partition(END)[0].strip()


def main() -> None:
    if "--write" not in sys.argv[1:]:
        print(tables())
        return
    before, _, rest = PAGE.read_text().partition(START)
    PAGE.write_text(f"{before}{START}\n\n{tables().strip()}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
