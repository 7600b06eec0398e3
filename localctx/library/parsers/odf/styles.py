"""Reads from an OpenDocument file's styles whether text or a slide is hidden, a title, or part of a list."""

from collections.abc import Iterator

from localctx.library.parsers.office.xml_tree import Element, attribute, child, children, descendants, number

_TITLE = "Title"  # the style of a document's title
_LEVELS = ("list-level-style-number", "list-level-style-bullet", "list-level-style-image", "outline-level-style")


class OdfStyles:
    """The styles of an OpenDocument file, from the XML trees ``roots``. If two styles have the same name, the last one
    counts.
    """

    def __init__(self, roots: list[Element]) -> None:
        listed = [style for root in roots for style in descendants(root, "style")]
        self._styles = {(attribute(style, "family"), attribute(style, "name")): style for style in listed}
        lists = [one for root in roots for one in descendants(root, "list-style")]
        self._lists = {attribute(one, "name"): _levels(one) for one in lists}
        outline = next((one for root in roots for one in descendants(root, "outline-style")), None)
        self.outline = _levels(outline)

    def is_hidden(self, family: str, name: str) -> bool:
        """Returns True if the style ``name`` hides text. ``family`` is ``paragraph`` or, for characters, ``text``."""
        for style in self._chain(family, name):
            if display := attribute(child(style, "text-properties"), "display"):
                return display == "none"
        return False

    def is_hidden_slide(self, name: str) -> bool:
        """Returns True if slides in this style are not shown."""
        styles = self._chain("drawing-page", name)
        return any(attribute(child(one, "drawing-page-properties"), "visibility") == "hidden" for one in styles)

    def is_title(self, name: str) -> bool:
        """Returns True if a paragraph in this style is the document's title."""
        return any(attribute(one, "name") == _TITLE for one in self._chain("paragraph", name))

    def list_levels(self, name: str) -> dict[int, Element]:
        """Returns the definitions of the levels of the list style ``name``, by level from 1."""
        return self._lists.get(name, {})

    def list_of(self, name: str) -> str | None:
        """Returns the name of the list style that the paragraph style ``name`` uses.

        Returns "" if the style says that there is no list, and None if it does not say.
        """
        for style in self._chain("paragraph", name):
            if (listed := attribute(style, "list-style-name", "-")) != "-":
                return listed
        return None

    def _chain(self, family: str, name: str) -> Iterator[Element]:
        seen = set[str]()
        while name not in seen and (style := self._styles.get((family, name))) is not None:
            seen.add(name)
            yield style
            name = attribute(style, "parent-style-name")


def _levels(style: Element | None) -> dict[int, Element]:
    return {number(attribute(one, "level")): one for one in children(style, *_LEVELS)}
