"""Counts the automatic numbers of a Word document's lists, and formats the number to print before a paragraph."""

import re
from dataclasses import dataclass, field

from localctx.library.parsers.list_numbers import formatted
from localctx.library.parsers.office.docx_styles import DocxStyles, Numbered, list_of
from localctx.library.parsers.office.xml_tree import Element, attribute, child, children, is_on, number

BULLET = "•"
_LEVELS = 9
_PLACE = re.compile(r"%([1-9])")  # %2 in a level's text stands for the number of level 2


@dataclass
class _List:
    """A list: the levels that it defines, and the counts that all its instances share."""

    levels: dict[int, Element]
    counts: dict[int, int] = field(default_factory=dict)


class DocxNumbering:
    """Counts the automatic numbers of a document's list paragraphs. ``next_number`` must be called for each paragraph,
    in document order.
    """

    def __init__(self, root: Element | None, styles: DocxStyles) -> None:
        self._styles = styles
        self._definitions = {attribute(one, "abstractNumId"): one for one in children(root, "abstractNum")}
        self._instances = {attribute(one, "numId"): one for one in children(root, "num")}
        self._lists: dict[str, _List] = {}
        self._started: set[tuple[str, int]] = set()  # (instance, level) of which a first number was counted

    def next_number(self, style: str, properties: Element | None) -> str:
        """Count one more paragraph, and return its number as printed, with a space after it; "" if it is not in a
        numbered list.

        ``properties`` are the paragraph's own properties. If they name no list, the list of its ``style`` counts.
        """
        instance, level = self._place(style, properties)
        if instance not in self._instances:
            return ""
        levels = self._levels(instance)
        self._count(instance, level, levels)
        return _printed(levels, level, self._list(instance).counts)

    def _place(self, style: str, properties: Element | None) -> tuple[str, int]:
        own = list_of(properties)
        instance = (own.list if own.list is not None else self._styles.list_of(style)) or "0"
        level = own.level if own.level is not None else self._styled_level(style, instance, own)
        return instance, min(max(level, 0), _LEVELS - 1)

    def _styled_level(self, style: str, instance: str, own: Numbered) -> int:
        """Returns the list level of a style. A level may name a style, and a style may name a level; the nearest style
        counts.
        """
        names = {} if own.list is not None or instance not in self._instances else self._levels(instance)
        by_style = {attribute(child(element, "pStyle"), "val"): level for level, element in names.items()}
        for ancestor, level in self._styles.levels(style):
            if ancestor in by_style or level is not None:
                return by_style.get(ancestor, level or 0)
        return 0

    def _list(self, instance: str) -> _List:
        name = attribute(child(self._instances[instance], "abstractNumId"), "val")
        if name not in self._lists:
            self._lists[name] = _List(_level_elements(self._definition(name)))
        return self._lists[name]

    def _definition(self, name: str) -> Element | None:
        """Returns the definition of a list. If it links to a numbering style, returns that style's definition."""
        definition = self._definitions.get(name)
        linked = attribute(child(definition, "numStyleLink"), "val")
        instance = self._instances.get(self._styles.list_of_style(linked) or "")
        return self._definitions.get(attribute(child(instance, "abstractNumId"), "val")) if linked else definition

    def _levels(self, instance: str) -> dict[int, Element]:
        levels = dict(self._list(instance).levels)
        for override in children(self._instances[instance], "lvlOverride"):
            levels.update(_level_elements(override))
        return levels

    def _count(self, instance: str, level: int, levels: dict[int, Element]) -> None:
        counts, first = self._list(instance).counts, self._first(instance, level)
        begins_anew = first is not None and (instance, level) not in self._started
        self._started.add((instance, level))
        if level in counts and not begins_anew:
            counts[level] += 1
        else:
            counts[level] = _start(levels.get(level)) if first is None else first
        for lower in [one for one in counts if one > level and _restarts(levels.get(one), level)]:
            del counts[lower]

    def _first(self, instance: str, level: int) -> int | None:
        """Returns the number with which an instance of a list overrides the start of a level, or None."""
        for override in children(self._instances[instance], "lvlOverride"):
            start = child(override, "startOverride")
            if number(attribute(override, "ilvl")) == level and start is not None:
                return number(attribute(start, "val"), 1)
        return None


def _level_elements(parent: Element | None) -> dict[int, Element]:
    return {number(attribute(one, "ilvl")): one for one in children(parent, "lvl")}


def _start(level: Element | None) -> int:
    return number(attribute(child(level, "start"), "val"), 1)


def _restarts(lower: Element | None, level: int) -> bool:
    """Returns True if a paragraph of ``level`` restarts the numbers of the level ``lower``. By default, each higher
    level restarts them.
    """
    after = child(lower, "lvlRestart")
    return after is None or level < number(attribute(after, "val"))


def _printed(levels: dict[int, Element], level: int, counts: dict[int, int]) -> str:
    definition = levels.get(level)
    form = attribute(child(definition, "numFmt"), "val", "decimal")
    text = attribute(child(definition, "lvlText"), "val")
    if form == "bullet":
        printed = BULLET if text.strip() or child(definition, "lvlPicBulletId") is not None else ""
    else:
        printed = _PLACE.sub(lambda place: _part(levels, level, int(place.group(1)) - 1, counts), text)
    gap = "" if attribute(child(definition, "suff"), "val") == "nothing" else " "
    return printed + gap if printed.strip() else ""


def _part(levels: dict[int, Element], level: int, part: int, counts: dict[int, int]) -> str:
    """Returns the number of level ``part`` as it is printed inside a number of level ``level``.

    Legal numbering writes all parts in digits.
    """
    form = attribute(child(levels.get(part), "numFmt"), "val", "decimal")
    value = counts.get(part, _start(levels.get(part)))
    if form in ("none", "bullet"):
        return ""
    return str(value) if is_on(child(levels.get(level), "isLgl")) else formatted(value, form)
