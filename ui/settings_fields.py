"""Defines the fields of the settings page: a component for each setting that declares a label."""

from collections.abc import Iterator
from typing import Any, get_args

import gradio as gr

from localctx.models.catalog import load_catalog
from localctx.settings import SETTINGS
from localctx.settings.declaration import Group, Setting, Shown
from localctx.settings.kinds import Choice, Number, Text

MOST_BUTTONS = 5  # values; a choice with more values is a dropdown
# the last one has its field on the memory page, beside measurements
GENERAL, *ADVANCED, ON_MEMORY_PAGE = get_args(Group)


class Field:
    """The field of one setting: the label, the line below the label, and the gradio component."""

    def __init__(self, name: str, setting: Setting, shown: Shown) -> None:
        self.name, self.group, self.label, self.info = name, shown.group, shown.label, shown.info
        self._kind = setting.kind

    @property
    def labels(self) -> dict[str, str]:
        """The label of each value, by value, if the setting is a choice; {} for other kinds of settings."""
        return dict(self._kind.labels) if isinstance(self._kind, Choice) else {}

    @property
    def choices(self) -> list[tuple[str, str]]:
        """(label, value) of each value of a choice, or of each example of a text setting."""
        return [(label, value) for value, label in self.labels.items()] or [(text, text) for text in self._examples()]

    def build(self) -> Any:
        """Returns the field's gradio component."""
        options: dict[str, Any] = {"label": self.label, "info": self.info or None, "elem_id": f"set-{self.name}"}
        if isinstance(self._kind, Number) and not self._kind.optional:
            return gr.Number(precision=0 if self._kind.whole else None, **options)
        if isinstance(self._kind, Choice) and len(self.labels) <= MOST_BUTTONS:
            return gr.Radio(self.choices, **options)
        if self.choices:
            return gr.Dropdown(self.choices, allow_custom_value=True, **options)
        return gr.Textbox(max_lines=1, **options)

    def _examples(self) -> list[str]:
        """Returns values to choose from, for a setting whose value can also be typed."""
        if self.name == "adapter":
            return ["auto", "none", *sorted({entry.reader for entry in load_catalog().values()} - {""})]
        if self.name == "embedder":
            return ["none"]  # the page offers the installed embedders
        return list(self._kind.examples) if isinstance(self._kind, Text) else []


def _fields() -> Iterator[Field]:
    for group in get_args(Group):
        for name, setting in SETTINGS.items():
            if setting.shown and setting.shown.group == group:
                yield Field(name, setting, setting.shown)


FIELDS = tuple(_fields())


def fields_of(group: str) -> list[Field]:
    """Returns the fields of the settings in this group."""
    return [field for field in FIELDS if field.group == group]
