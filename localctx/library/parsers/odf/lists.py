"""Counts the automatic numbers of lists and headings in an OpenDocument file."""

import re

from localctx.library.parsers.list_numbers import MARKERS, formatted
from localctx.library.parsers.odf.styles import OdfStyles
from localctx.library.parsers.office.xml_tree import Element, attribute, descendants, local, number

BULLET = "• "
_SAMPLES = {"01": "decimalZero", "一": "chineseCounting", "①": "decimalEnclosedCircle", "أ": "arabicAlpha"}
_SAMPLES |= {"А": "russianUpper", "а": "russianLower", "Α": "greekUpper", "α": "greekLower", "א": "hebrew1"}  # noqa: RUF001
_PLACE = re.compile(r"%(\d{1,2})%")


class _Chain:
    """The counter of lists that continue each other's numbers: the last number of each level."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}


class OdfLists:
    """Counts the automatic numbers of a document's lists and headings. Callers enter and leave lists and items in
    document order.
    """

    def __init__(self, styles: OdfStyles) -> None:
        self._styles = styles
        self._open: list[tuple[_Chain, str]] = []  # the chain and list style of each open list
        self._by_id: dict[str, _Chain] = {}
        self._by_style: dict[str, _Chain] = {}
        self._outline = _Chain()

    def enter(self, element: Element, paragraph_style: str = "") -> None:
        """Enter the list in ``element``, before its items are counted.

        A list without a style takes the style of the list around it, or the list style that ``paragraph_style`` names.
        """
        around = self._open[-1] if self._open else None
        style = (
            attribute(element, "style-name") or (around[1] if around else self._styles.list_of(paragraph_style)) or ""
        )
        chain = around[0] if around else self._chain(element, style)
        self._by_id[attribute(element, "id")] = self._by_style[style] = chain
        self._open.append((chain, style))

    def leave(self) -> None:
        """Leave the list that was entered last."""
        self._open.pop()

    def item_number(self, item: Element) -> str:
        """Count one more item of the open list, and return its number as printed, with a space after it."""
        chain, style = self._open[-1]
        start = attribute(item, "start-value")
        return _counted(chain, self._styles.list_levels(style), len(self._open), number(start) if start else None)

    def heading_number(self, heading: Element) -> str:
        """Count one more heading outside of lists, and return its number as printed, with a space after it; "" if it
        has none.
        """
        level = number(attribute(heading, "outline-level"), 1)
        own = self._styles.list_of(attribute(heading, "style-name"))
        levels = self._styles.list_levels(own) if own else self._styles.outline
        if attribute(heading, "is-list-header") == "true" or own == "":
            return ""
        restarts = attribute(heading, "restart-numbering") == "true"
        start = number(attribute(heading, "start-value"), 1) if restarts else None
        return _counted(self._outline, levels, level, start)

    def _chain(self, element: Element, style: str) -> _Chain:
        if (continued := attribute(element, "continue-list")) in self._by_id and continued:
            return self._by_id[continued]
        if attribute(element, "continue-numbering") == "true" and style in self._by_style:
            return self._by_style[style]
        return _Chain()


def _counted(chain: _Chain, levels: dict[int, Element], level: int, start: int | None) -> str:
    counts = chain.counts
    first = start if start is not None else _start(levels.get(level))
    counts[level] = counts[level] + 1 if level in counts and start is None else first
    for deeper in [one for one in counts if one > level]:
        del counts[deeper]
    definition = levels.get(level)
    if definition is None:
        return ""
    if local(definition) in ("list-level-style-bullet", "list-level-style-image"):
        return BULLET
    printed = _printed(definition, levels, level, counts)
    followed = [attribute(one, "label-followed-by") for one in descendants(definition, "list-level-label-alignment")]
    return printed + ("" if "nothing" in followed or not printed.strip() else " ")


def _start(level: Element | None) -> int:
    return number(attribute(level, "start-value"), 1)


def _printed(definition: Element, levels: dict[int, Element], level: int, counts: dict[int, int]) -> str:
    if not attribute(definition, "num-format"):
        return attribute(definition, "num-prefix") + attribute(definition, "num-suffix")
    if pattern := attribute(definition, "num-list-format"):
        return _PLACE.sub(lambda place: _part(levels, int(place.group(1)), counts), pattern)
    shown = range(max(1, level - number(attribute(definition, "display-levels"), 1) + 1), level + 1)
    parts = (_part(levels, one, counts) for one in shown)
    return attribute(definition, "num-prefix") + ".".join(filter(None, parts)) + attribute(definition, "num-suffix")


def _part(levels: dict[int, Element], level: int, counts: dict[int, int]) -> str:
    definition = levels.get(level)
    form = attribute(definition, "num-format")
    value = counts.get(level, _start(definition))
    if not form:
        return ""
    if attribute(definition, "num-letter-sync") == "true":
        form = {"a": "lowerLetter", "A": "upperLetter"}.get(form, form)
    known = MARKERS.get(form) or next((name for sample, name in _SAMPLES.items() if form.startswith(sample)), form)
    return formatted(value, known)
